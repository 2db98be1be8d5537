// SPDX-License-Identifier: MIT
/// \file
/// A tensor as the operators see it: pointer, four extents, four strides, in the logical order
/// [B, H, N, D] whatever the order in memory.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "fovea/core/config.hpp"
#include "fovea/core/error.hpp"

FOVEA_NAMESPACE_BEGIN

/// Extents or strides in the order [batch, heads, rows, width], in elements.
using Shape = std::array<Index, 4>;

/// The names of the dimensions in messages.
inline constexpr std::array<const char*, 4> kDimensionNames = {"batch", "heads", "rows", "width"};

/// Tells how a type is viewed: specialisations (core/eigen.hpp) hold `Scalar` and
/// `static View<...> view(X&)`.
template <class X>
struct ViewTraits;

template <class X>
concept Viewable = requires {
  typename ViewTraits<std::remove_cvref_t<X>>::Scalar;
};

namespace detail {

/// a * b, or nothing if it does not fit; a, b >= 0.
inline bool multiply(Index a, Index b, Index& product) {
  if (b != 0 && a > (std::numeric_limits<Index>::max)() / b) return false;
  product = a * b;
  return true;
}

}  // namespace detail

/// "2x8x4096x64".
inline std::string to_string(const Shape& shape) {
  std::string text;
  for (std::size_t d = 0; d < 4; ++d) {
    text += d == 0 ? "" : "x";
    text += std::to_string(shape[d]);
  }
  return text;
}

/// Refuses a tensor for its dimension d; one that was never given, for that.
[[noreturn]] inline void refuse_extent(std::string_view where, const std::string& tensor,
                                       const Shape& shape, std::size_t d,
                                       const std::string& expected) {
  const std::string name = kDimensionNames[d];
  if (shape == Shape{}) refuse(where, tensor, "missing", "one of " + name + " " + expected);
  refuse(where, name + " of " + tensor, std::to_string(shape[d]), expected);
}

/// Strides of a tensor of this shape whose last index is the fastest.
inline Shape row_major(const Shape& shape) {
  return {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
}

template <class T>
class View;

namespace detail {

template <class X>
inline constexpr bool kIsView = false;
template <class T>
inline constexpr bool kIsView<View<T>> = true;

/// Whether what ViewTraits makes of an X, no view itself, is a view of T, or of what T is const of.
template <class X, class T>
concept ViewsAs = !kIsView<std::remove_cvref_t<X>> && requires(X & x) {
  { ViewTraits<std::remove_cvref_t<X>>::view(x).data() } -> std::convertible_to<T*>;
}
&&std::is_same_v<typename ViewTraits<std::remove_cvref_t<X>>::Scalar, std::remove_const_t<T>>;

}  // namespace detail

/// Non-owning view of a tensor [B, H, N, D]. Any stride is a view, 0 (a broadcast) and negative
/// ones too; what an operator writes must have distinct elements, which the operator checks.
/// A view of const is made from a view of non-const, and either from what ViewTraits knows.
template <class T>
class View {
 public:
  using Scalar = std::remove_const_t<T>;

  /// No tensor: no data, all extents 0.
  View() = default;

  /// \param data element [0, 0, 0, 0]; may be null if an extent is 0
  /// \throws std::invalid_argument an extent < 0, data null but elements, or offsets beyond Index
  View(T* data, const Shape& shape, const Shape& strides)
      : data_(data), shape_(shape), strides_(strides) {
    check();
  }

  /// Row-major and dense.
  View(T* data, const Shape& shape) : View(data, shape, row_major(checked(shape))) {}

  template <class U>
  requires(std::is_const_v<T>&& std::is_same_v<U, Scalar>)
      // NOLINTNEXTLINE(google-explicit-constructor): a view of non-const is a view of const
      View(const View<U>& other)
      : data_(other.data()), shape_(other.shape()), strides_(other.strides()) {}

  /// From an Eigen tensor, map or matrix (fovea/core/eigen.hpp).
  template <Viewable X>
  requires detail::ViewsAs<X, T>
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
  View(X&& x) : View(ViewTraits<std::remove_cvref_t<X>>::view(x)) {}

  T* data() const { return data_; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }
  Index batch() const { return shape_[0]; }
  Index heads() const { return shape_[1]; }
  Index rows() const { return shape_[2]; }
  Index width() const { return shape_[3]; }
  /// The number of elements.
  Index size() const { return shape_[0] * shape_[1] * shape_[2] * shape_[3]; }
  /// Whether it was never given a tensor.
  bool is_none() const { return data_ == nullptr && shape_ == Shape{}; }

  T& operator()(Index b, Index h, Index n, Index d) const {
    return data_[b * strides_[0] + h * strides_[1] + n * strides_[2] + d * strides_[3]];
  }

 private:
  // The product of the extents must fit before row_major multiplies them.
  static const Shape& checked(const Shape& shape) {
    Index size = 1;
    for (std::size_t d = 4; d-- > 0;) {
      if (shape[d] < 0) {
        refuse("View", std::string(kDimensionNames[d]), std::to_string(shape[d]), "at least 0");
      }
      // Extents of 0 count as 1, so that every partial product fits too.
      if (!detail::multiply(size, shape[d] == 0 ? 1 : shape[d], size)) {
        refuse("View", "shape", to_string(shape), "a size that fits std::ptrdiff_t");
      }
    }
    return shape;
  }

  void check() const {
    checked(shape_);
    if (size() == 0) return;
    if (data_ == nullptr) refuse("View", "data", "null", "storage for " + to_string(shape_));
    constexpr Index most = (std::numeric_limits<Index>::max)() / static_cast<Index>(sizeof(T));
    Index reach = 0;
    for (std::size_t d = 0; d < 4; ++d) {
      if (shape_[d] == 1) continue;
      Index step = 0;
      const bool fits =
          strides_[d] >= -most && strides_[d] <= most &&
          detail::multiply(strides_[d] < 0 ? -strides_[d] : strides_[d], shape_[d] - 1, step);
      if (!fits || step > most - reach) {
        refuse("View", std::string("stride of ") + kDimensionNames[d],
               std::to_string(strides_[d]) + " for " + to_string(shape_),
               "offsets that fit std::ptrdiff_t");
      }
      reach += step;
    }
  }

  T* data_ = nullptr;
  Shape shape_{};
  Shape strides_{};
};

/// The tensor that `attend` makes of views: `static ... make(const Shape&)` (core/eigen.hpp).
template <class T>
struct ResultOfViews;

template <class T>
struct ViewTraits<View<T>> {
  using Scalar = std::remove_const_t<T>;

  static View<T> view(const View<T>& x) { return x; }
  static auto make(const Shape& s) { return ResultOfViews<Scalar>::make(s); }
};

FOVEA_NAMESPACE_END
