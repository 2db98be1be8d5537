// SPDX-License-Identifier: MIT
/// \file
/// A tensor as the operators see it: a pointer, four extents and four strides, in the logical order
/// [B, H, N, D] whatever the memory order.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "fovea/core/config.hpp"
#include "fovea/core/error.hpp"

FOVEA_NAMESPACE_BEGIN

/// Four extents, or four strides in elements, in the order [batch, heads, rows, width].
using Shape = std::array<Index, 4>;

/// The names of the four dimensions in error messages.
inline constexpr std::array<const char*, 4> kDimensionNames = {"batch", "heads", "rows", "width"};

/// How a type is viewed. A specialisation defines the element type `Scalar` and
/// `static View<...> view(X&)`. It may also have `make(shape)`, which makes the tensor that
/// `attend` returns. Those for Eigen's types are in fovea/core/eigen.hpp.
template <class X>
struct ViewTraits;

/// A type that has ViewTraits.
template <class X>
concept Viewable = requires {
  typename ViewTraits<std::remove_cvref_t<X>>::Scalar;
};

namespace detail {

/// Sets `product` to a * b; returns false if that does not fit. \pre a >= 0 and b >= 0
FOVEA_COLD inline bool multiply(Index a, Index b, Index& product) {
  if (b != 0 && a > (std::numeric_limits<Index>::max)() / b) return false;
  product = a * b;
  return true;
}

}  // namespace detail

/// The extents as text, for example "2x8x4096x64".
FOVEA_COLD inline std::string to_string(const Shape& shape) {
  std::string text;
  for (std::size_t d = 0; d < 4; ++d) {
    text += d == 0 ? "" : "x";
    text += std::to_string(shape[d]);
  }
  return text;
}

/// The extent of dimension d as text: "batch 2", "1 head", "7 rows", "width 64".
FOVEA_COLD inline std::string extent_text(const Shape& shape, std::size_t d) {
  const std::string number = std::to_string(shape[d]);
  std::string name = kDimensionNames[d];
  if (d == 0 || d == 3) return name.append(" ").append(number);
  if (shape[d] == 1) name.pop_back();
  return number + ' ' + name;
}

/// Throws std::invalid_argument about the extent of dimension d of a tensor, for example
/// "FullAttention: v has 8 rows; expected 9, the rows of k". If all extents are 0, the message says
/// that the tensor is required.
[[noreturn]] FOVEA_COLD inline void refuse_extent(std::string_view where, const std::string& tensor,
                                                  const Shape& shape, std::size_t d,
                                                  const std::string& expected) {
  if (shape == Shape{}) refuse_missing(where, tensor);
  refuse(where, tensor + " has " + extent_text(shape, d), "expected " + expected);
}

/// The strides of a dense row-major tensor of this shape.
inline Shape row_major(const Shape& shape) {
  return {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
}

template <class T>
class View;

namespace detail {

/// Returns the shape. Refuses negative extents, and extents whose product does not fit Index, since
/// row_major multiplies them.
FOVEA_COLD inline const Shape& checked(const Shape& shape) {
  Index size = 1;
  for (std::size_t d = 4; d-- > 0;) {
    if (shape[d] < 0) {
      refuse("View", "shape has " + extent_text(shape, d), "expected at least 0");
    }
    // An extent of 0 counts as 1 here, so that every partial product fits too.
    if (!multiply(size, shape[d] == 0 ? 1 : shape[d], size)) {
      refuse("View", "shape", to_string(shape), "a number of elements that fits std::ptrdiff_t");
    }
  }
  return shape;
}

/// Refuses a null address of elements, and byte offsets that do not fit Index.
FOVEA_COLD inline void check_layout(const void* data, const Shape& shape, const Shape& strides,
                                    std::size_t element_size) {
  checked(shape);
  if (shape[0] == 0 || shape[1] == 0 || shape[2] == 0 || shape[3] == 0) return;
  if (data == nullptr) {
    refuse("View", "data", "null", "the address of " + to_string(shape) + " elements");
  }
  const Index most = (std::numeric_limits<Index>::max)() / static_cast<Index>(element_size);
  Index reach = 0;
  for (std::size_t d = 0; d < 4; ++d) {
    if (shape[d] == 1) continue;
    Index step = 0;
    const bool fits = strides[d] >= -most && strides[d] <= most &&
                      multiply(strides[d] < 0 ? -strides[d] : strides[d], shape[d] - 1, step);
    if (!fits || step > most - reach) {
      refuse("View", std::string("stride of ") + kDimensionNames[d],
             std::to_string(strides[d]) + " for " + to_string(shape) + " elements",
             "offsets that fit std::ptrdiff_t");
    }
    reach += step;
  }
}

template <class X>
inline constexpr bool kIsView = false;
template <class T>
inline constexpr bool kIsView<View<T>> = true;

/// Whether X is not a view itself and its ViewTraits make a view of T, or of T without const.
template <class X, class T>
concept ViewsAs = !kIsView<std::remove_cvref_t<X>> && requires(X & x) {
  { ViewTraits<std::remove_cvref_t<X>>::view(x).data() } -> std::convertible_to<T*>;
}
&&std::is_same_v<typename ViewTraits<std::remove_cvref_t<X>>::Scalar, std::remove_const_t<T>>;

}  // namespace detail

/// A non-owning view of a tensor [B, H, N, D]. Any strides are allowed, including 0 (a broadcast)
/// and negative ones. A tensor that an operator writes must have distinct elements, which the
/// operator checks. A view of const elements can be made from a view of non-const ones, and either
/// from any type that has ViewTraits.
///
/// Shapes and strides of dense data in other orders, strides in elements:
///
///     [B, H, N, D]:                      View(p, {B, H, N, D})
///     [B, N, H, D]:                      View(p, {B, H, N, D}, {N * H * D, D, H * D, 1})
///     [N, H * D], heads side by side:    View(p, {1, H, N, D}, {N * H * D, D, H * D, 1})
///
/// **Data in another order than that of shape and strides cannot be detected**: the results are
/// silently wrong.
template <class T>
class View {
 public:
  using Scalar = std::remove_const_t<T>;  ///< The type of the elements, without const.

  /// No tensor: the data is null and all extents are 0.
  View() = default;

  /// \param data element [0, 0, 0, 0]; it may be null if an extent is 0
  /// \param shape extents, each at least 0
  /// \param strides distances in elements from one index to the next
  /// \throws std::invalid_argument if an extent is negative, if data is null although there are
  /// elements, or if an offset does not fit Index
  View(T* data, const Shape& shape, const Shape& strides)
      : data_(data), shape_(shape), strides_(strides) {
    detail::check_layout(data, shape, strides, sizeof(T));
  }

  /// The view of a dense row-major tensor. \throws as the constructor above
  View(T* data, const Shape& shape) : View(data, shape, row_major(detail::checked(shape))) {}

  /// A read-only view of the same tensor.
  template <class U>
  requires(std::is_const_v<T>&& std::is_same_v<U, Scalar>)
      // NOLINTNEXTLINE(google-explicit-constructor): a view of non-const is a view of const
      View(const View<U>& other)
      : data_(other.data()), shape_(other.shape()), strides_(other.strides()) {}

  /// The view of an Eigen tensor, map or matrix (fovea/core/eigen.hpp).
  template <Viewable X>
  requires detail::ViewsAs<X, T>
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
  View(X&& x) : View(ViewTraits<std::remove_cvref_t<X>>::view(x)) {}

  /// The address of element [0, 0, 0, 0]; null if there is no tensor.
  T* data() const { return data_; }
  /// The four extents.
  const Shape& shape() const { return shape_; }
  /// The four strides, in elements.
  const Shape& strides() const { return strides_; }
  /// The extent B, the number of sequences.
  Index batch() const { return shape_[0]; }
  /// The extent H, the number of heads.
  Index heads() const { return shape_[1]; }
  /// The extent N, the number of rows: one for each token.
  Index rows() const { return shape_[2]; }
  /// The extent D, the number of elements in a row.
  Index width() const { return shape_[3]; }
  /// The number of elements.
  Index size() const { return shape_[0] * shape_[1] * shape_[2] * shape_[3]; }
  /// Whether this view was never given a tensor.
  bool empty() const { return data_ == nullptr && shape_ == Shape{}; }

  /// The element at [b, h, n, d]. The indices are not checked.
  T& operator()(Index b, Index h, Index n, Index d) const {
    return data_[b * strides_[0] + h * strides_[1] + n * strides_[2] + d * strides_[3]];
  }

 private:
  T* data_ = nullptr;
  Shape shape_{};
  Shape strides_{};
};

/// How `attend` makes its result if its inputs are views: `static ... make(const Shape&)`, defined
/// in fovea/core/eigen.hpp.
template <class T>
struct ResultOfViews;

/// A view is viewed as itself.
template <class T>
struct ViewTraits<View<T>> {
  using Scalar = std::remove_const_t<T>;  ///< The type of the elements, without const.

  /// x itself.
  static View<T> view(const View<T>& x) { return x; }
  /// Makes the tensor that `attend` returns; needs fovea/core/eigen.hpp.
  static auto make(const Shape& s) { return ResultOfViews<Scalar>::make(s); }
};

FOVEA_NAMESPACE_END
