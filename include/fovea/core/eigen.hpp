// SPDX-License-Identifier: MIT
/// \file
/// The only header that depends on Eigen's tensors and matrices: how each becomes a `View`, and how
/// an operator's result becomes an Eigen tensor.
#pragma once

#include <Eigen/Core>
#include <type_traits>
#include <unsupported/Eigen/CXX11/Tensor>

#include "fovea/core/members.hpp"
#include "fovea/core/scalar.hpp"
#include "fovea/core/view.hpp"

FOVEA_NAMESPACE_BEGIN

/// The tensor that `attend` returns if its inputs are views, not Eigen tensors.
template <class T>
using Tensor4 = Eigen::Tensor<T, 4, Eigen::RowMajor>;

namespace detail {

/// The view of a dense tensor of rank 4 that is stored in row-major or column-major order.
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

/// An Eigen matrix whose elements are in memory, not an unevaluated expression.
template <class T>
concept EigenMatrix = std::is_base_of_v<Eigen::MatrixBase<T>, T> &&
                      (T::Flags& Eigen::DirectAccessBit) != 0;

}  // namespace detail

/// View traits of an Eigen tensor [B, H, N, D] in either storage order.
template <class T, int Options, class In>
struct ViewTraits<Eigen::Tensor<T, 4, Options, In>> {
  using Scalar = T;  ///< The type of the elements.
  /// What `attend` returns for a query tensor of this type.
  using Result = Eigen::Tensor<T, 4, Options, In>;
  /// Whether the last index is the fastest in memory.
  static constexpr bool kRowMajor = (Options & Eigen::RowMajorBit) != 0;

  /// The view of all elements of x, which may be written.
  static View<T> view(Eigen::Tensor<T, 4, Options, In>& x) {
    return detail::view_of_tensor<T>(x.data(), x, kRowMajor);
  }
  /// The view of all elements of x, which are only read.
  static View<const T> view(const Eigen::Tensor<T, 4, Options, In>& x) {
    return detail::view_of_tensor<const T>(x.data(), x, kRowMajor);
  }
  /// An uninitialised tensor of shape s.
  static Result make(const Shape& s) {
    return Result(static_cast<In>(s[0]), static_cast<In>(s[1]), static_cast<In>(s[2]),
                  static_cast<In>(s[3]));
  }
};

/// View traits of an Eigen tensor map [B, H, N, D].
template <class Plain, int Options, template <class> class MakePointer>
struct ViewTraits<Eigen::TensorMap<Plain, Options, MakePointer>> {
  using Map = Eigen::TensorMap<Plain, Options, MakePointer>;  ///< The map itself.
  /// The type of the elements, without const.
  using Scalar = std::remove_const_t<typename Plain::Scalar>;
  /// The traits of the mapped tensor type.
  using Owner = ViewTraits<std::remove_const_t<Plain>>;
  /// What `attend` returns for a query tensor of this type.
  using Result = typename Owner::Result;
  /// Scalar, which is const if the mapped tensor is.
  using Element = std::conditional_t<std::is_const_v<Plain>, const Scalar, Scalar>;

  /// The view of all elements of x.
  static View<Element> view(const Map& x) {
    return detail::view_of_tensor<Element>(x.data(), x, Owner::kRowMajor);
  }
  /// An uninitialised tensor of shape s, which owns its memory.
  static Result make(const Shape& s) { return Owner::make(s); }
};

/// View traits of a matrix [N, D], or a Map, Block or Ref of one: one batch entry with one head.
template <detail::EigenMatrix M>
struct ViewTraits<M> {
  using Scalar = typename M::Scalar;  ///< The type of the elements.
  /// What `attend` returns for a query matrix of this type: a matrix of the same storage order.
  using Result = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic,
                               M::IsRowMajor ? Eigen::RowMajor : Eigen::ColMajor>;

  /// The view [1, 1, N, D] of x, whose elements may be written.
  static auto view(M& x) { return of(x.data(), x); }
  /// The view [1, 1, N, D] of x, whose elements are only read.
  static auto view(const M& x) { return of(x.data(), x); }

  /// An uninitialised matrix of s[2] rows and s[3] columns.
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

/// Span traits of an integer vector, or a Map, Block or Ref of one.
template <class M>
requires(std::is_base_of_v<Eigen::DenseBase<M>, M> && (M::Flags & Eigen::DirectAccessBit) != 0 &&
         bool(M::IsVectorAtCompileTime) &&
         detail::IndexElement<typename M::Scalar>) struct IndexSpanTraits<M> {
  /// All integers of x.
  static IndexSpan view(const M& x) {
    return {x.data(), static_cast<std::size_t>(x.size()), x.innerStride()};
  }
};

/// Span traits of an integer tensor of rank 1.
template <detail::IndexElement T, int Options, class In>
struct IndexSpanTraits<Eigen::Tensor<T, 1, Options, In>> {
  /// All integers of x.
  static IndexSpan view(const Eigen::Tensor<T, 1, Options, In>& x) {
    return {x.data(), static_cast<std::size_t>(x.size())};
  }
};

/// How `attend` makes its result if its inputs are views.
template <class T>
struct ResultOfViews {
  /// An uninitialised row-major tensor of shape s.
  static Tensor4<T> make(const Shape& s) { return ViewTraits<Tensor4<T>>::make(s); }
};

/// The view [B, H, N, 1] of a tensor [B, H, N] that has one number for each row, such as lse.
template <class T, int Options, class In>
[[nodiscard]] View<T> row_view(Eigen::Tensor<T, 3, Options, In>& x) {
  const Shape shape = {x.dimension(0), x.dimension(1), x.dimension(2), 1};
  if constexpr ((Options & Eigen::RowMajorBit) != 0) return View<T>(x.data(), shape);
  return View<T>(x.data(), shape, {1, shape[0], shape[0] * shape[1], 0});
}

namespace detail {

/// The view [B, 1, L, C] of a tensor [B, L, C] in row-major or column-major order.
template <class T, class X>
View<T> view_of_channels(T* data, const X& x, bool is_row_major) {
  const Shape shape = {x.dimension(0), 1, x.dimension(1), x.dimension(2)};
  if (is_row_major) return View<T>(data, shape);
  return View<T>(data, shape, {1, 0, shape[0], shape[0] * shape[2]});
}

}  // namespace detail

/// The view [B, 1, L, C] of a tensor [B, L, C], such as hidden states.
template <class T, int Options, class In>
[[nodiscard]] View<T> channels_view(Eigen::Tensor<T, 3, Options, In>& x) {
  return detail::view_of_channels<T>(x.data(), x, (Options & Eigen::RowMajorBit) != 0);
}
/// The view [B, 1, L, C] of a read-only tensor [B, L, C].
template <class T, int Options, class In>
[[nodiscard]] View<const T> channels_view(const Eigen::Tensor<T, 3, Options, In>& x) {
  return detail::view_of_channels<const T>(x.data(), x, (Options & Eigen::RowMajorBit) != 0);
}

FOVEA_NAMESPACE_END
