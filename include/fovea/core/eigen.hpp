// SPDX-License-Identifier: MIT
/// \file
/// The only place that knows Eigen's tensors and matrices: how each becomes a `View`, and how an
/// operator's result becomes an Eigen tensor again.
#pragma once

#include <Eigen/Core>
#include <type_traits>
#include <unsupported/Eigen/CXX11/Tensor>

#include "fovea/core/scalar.hpp"
#include "fovea/core/view.hpp"

FOVEA_NAMESPACE_BEGIN

template <>
struct ScalarTraits<Eigen::bfloat16> {
  using Compute = float;
  static constexpr Storage kStorage = Storage::bfloat16;
};

template <>
struct ScalarTraits<Eigen::half> {
  using Compute = float;
  static constexpr Storage kStorage = Storage::float16;
};

/// The tensor that `attend` returns unless its inputs say otherwise.
template <class T>
using Tensor4 = Eigen::Tensor<T, 4, Eigen::RowMajor>;

namespace detail {

/// The view of a dense tensor of rank 4, in its storage order.
template <class T, class X>
View<T> view_of_tensor(T* data, const X& x, bool is_row_major) {
  Shape shape;
  for (std::size_t d = 0; d < 4; ++d) shape[d] = static_cast<Index>(x.dimensions()[d]);
  Shape strides = row_major(shape);
  if (!is_row_major) {
    strides = {1, shape[0], shape[0] * shape[1], shape[0] * shape[1] * shape[2]};
  }
  return View<T>(data, shape, strides);
}

template <class T>
concept EigenMatrix = std::is_base_of_v<Eigen::MatrixBase<T>, T> &&
                      (T::Flags& Eigen::DirectAccessBit) != 0;

}  // namespace detail

template <class T, int Rank, int Options, class I>
struct ViewTraits<Eigen::Tensor<T, Rank, Options, I>> {
  static_assert(Rank == 4, "fovea: an operator takes tensors of rank 4, [B, H, N, D]");
  using Scalar = T;
  using Result = Eigen::Tensor<T, 4, Options, I>;
  static constexpr bool kRowMajor = (Options & Eigen::RowMajorBit) != 0;

  static View<T> view(Eigen::Tensor<T, Rank, Options, I>& x) {
    return detail::view_of_tensor<T>(x.data(), x, kRowMajor);
  }
  static View<const T> view(const Eigen::Tensor<T, Rank, Options, I>& x) {
    return detail::view_of_tensor<const T>(x.data(), x, kRowMajor);
  }
  static Result make(const Shape& s) {
    return Result(static_cast<I>(s[0]), static_cast<I>(s[1]), static_cast<I>(s[2]),
                  static_cast<I>(s[3]));
  }
};

template <class Plain, int Options, template <class> class MakePointer>
struct ViewTraits<Eigen::TensorMap<Plain, Options, MakePointer>> {
  using Map = Eigen::TensorMap<Plain, Options, MakePointer>;
  using Scalar = std::remove_const_t<typename Plain::Scalar>;
  using Owner = ViewTraits<std::remove_const_t<Plain>>;
  using Result = typename Owner::Result;
  using Element = std::conditional_t<std::is_const_v<Plain>, const Scalar, Scalar>;

  static View<Element> view(const Map& x) {
    return detail::view_of_tensor<Element>(x.data(), x, Owner::kRowMajor);
  }
  static Result make(const Shape& s) { return Owner::make(s); }
};

/// A matrix [N, D], a Map, a Block or a Ref: one batch, one head.
template <detail::EigenMatrix M>
struct ViewTraits<M> {
  using Scalar = typename M::Scalar;
  using Result = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic,
                               M::IsRowMajor ? Eigen::RowMajor : Eigen::ColMajor>;

  static auto view(M& x) { return of(x.data(), x); }
  static auto view(const M& x) { return of(x.data(), x); }

  static Result make(const Shape& s) { return Result(s[2], s[3]); }

 private:
  template <class T>
  static View<T> of(T* data, const M& x) {
    const Index outer = x.outerStride();
    const Index inner = x.innerStride();
    const Index row = M::IsRowMajor ? outer : inner;
    const Index column = M::IsRowMajor ? inner : outer;
    return View<T>(data, {1, 1, x.rows(), x.cols()}, {0, 0, row, column});
  }
};

template <class T>
struct ResultOfViews {
  static Tensor4<T> make(const Shape& s) { return ViewTraits<Tensor4<T>>::make(s); }
};

/// A tensor [B, H, N] of one number per row, such as lse, as the view [B, H, N, 1].
template <class T, int Options, class I>
[[nodiscard]] View<T> row_view(Eigen::Tensor<T, 3, Options, I>& x) {
  const Shape shape = {x.dimension(0), x.dimension(1), x.dimension(2), 1};
  if constexpr ((Options & Eigen::RowMajorBit) != 0) return View<T>(x.data(), shape);
  return View<T>(x.data(), shape, {1, shape[0], shape[0] * shape[1], 0});
}

namespace detail {

template <class T, class X>
View<T> view_of_channels(T* data, const X& x, bool is_row_major) {
  const Shape shape = {x.dimension(0), 1, x.dimension(1), x.dimension(2)};
  if (is_row_major) return View<T>(data, shape);
  return View<T>(data, shape, {1, 0, shape[0], shape[0] * shape[2]});
}

}  // namespace detail

/// A tensor [B, L, C] of channels, such as hidden states, as the view [B, 1, L, C].
template <class T, int Options, class I>
[[nodiscard]] View<T> channels_view(Eigen::Tensor<T, 3, Options, I>& x) {
  return detail::view_of_channels<T>(x.data(), x, (Options & Eigen::RowMajorBit) != 0);
}
template <class T, int Options, class I>
[[nodiscard]] View<const T> channels_view(const Eigen::Tensor<T, 3, Options, I>& x) {
  return detail::view_of_channels<const T>(x.data(), x, (Options & Eigen::RowMajorBit) != 0);
}

FOVEA_NAMESPACE_END
