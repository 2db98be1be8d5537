// SPDX-License-Identifier: MIT
/// \file
/// Makes the matrices of one head that a kernel reads from the views of a call.
#pragma once

#include <algorithm>

#include "fovea/core/view.hpp"
#include "fovea/simd/matrix.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The address of the first element of row n of a head. Does no arithmetic on the null pointer of
/// an empty tensor.
template <class T>
T* head_row(const View<T>& x, Index b, Index h, Index n) {
  const Shape& s = x.strides();
  return x.size() == 0 ? x.data() : x.data() + b * s[0] + h * s[1] + n * s[2];
}

/// The stride of the columns, in elements. A single column counts as contiguous, whatever its
/// stride.
template <class T>
Index column_stride(const View<T>& x) {
  return x.width() == 1 ? 1 : x.strides()[3];
}

/// The stride of the rows, in elements. A single row's stride is ignored, since it may be too large
/// to multiply.
template <class T>
Index row_stride(const View<T>& x) {
  return x.rows() == 1 ? x.width() : x.strides()[2];
}

/// A head's matrix, from row n on.
template <class T>
Matrix<T> head_matrix(const View<T>& x, Index b, Index h, Index n) {
  return {head_row(x, b, h, n), row_stride(x), column_stride(x)};
}

/// The same for a tensor that is read in its storage type.
template <class T>
StoredMatrix<kStorage<T>> head_stored(const View<const T>& x, Index b, Index h, Index n) {
  return {head_row(x, b, h, n), row_stride(x), column_stride(x)};
}

/// The same for a tensor that is written.
template <class T>
OutputMatrix<kStorage<T>> head_output(const View<T>& x, Index b, Index h, Index n) {
  return {head_row(x, b, h, n), row_stride(x), column_stride(x)};
}

/// The [Nq, Nk] matrix of one head of a tensor that may be broadcast, from row n and column m on.
template <class T>
Matrix<T> head_logits(const View<T>& x, Index b, Index h, Index n, Index m) {
  if (x.empty()) return {};
  const auto stride = [&](std::size_t d) { return x.shape()[d] == 1 ? 0 : x.strides()[d]; };
  if (x.size() == 0) return {x.data(), 0, 0};
  return {x.data() + b * stride(0) + h * stride(1) + n * stride(2) + m * stride(3), stride(2),
          stride(3)};
}

/// Copies rows of a matrix.
template <class U, class T>
void copy_rows(const Matrix<U>& from, Index rows, Index width, const Matrix<T>& to) {
  const bool are_contiguous = from.column == 1 && to.column == 1;
  for (Index i = 0; i < rows; ++i) {
    const U* const row = from.data + i * from.row;
    T* const copy = to.data + i * to.row;
    if (are_contiguous) {
      std::copy_n(row, width, copy);
    } else {
      for (Index c = 0; c < width; ++c) copy[c * to.column] = row[c * from.column];
    }
  }
}

/// Copies a tensor to the rows of another one from row n on. If that is empty, nothing is copied.
template <class T>
void copy_tensor(const View<T>& from, const View<T>& to, Index n = 0) {
  for (Index b = 0; b < to.batch(); ++b) {
    for (Index h = 0; h < to.heads(); ++h) {
      copy_rows(head_matrix(from, b, h, 0), from.rows(), to.width(), head_matrix(to, b, h, n));
    }
  }
}

/// Sets some rows of a head to x. An empty tensor stays empty.
template <class T>
void fill_rows(const View<T>& to, Index b, Index h, Index first, Index end, T x) {
  for (Index n = first; n < end && !to.empty(); ++n) {
    for (Index c = 0; c < to.width(); ++c) to(b, h, n, c) = x;
  }
}
/// The same for all heads.
template <class T>
void fill_rows(const View<T>& to, Index b, Index first, Index end, T x) {
  for (Index h = 0; h < to.heads(); ++h) fill_rows(to, b, h, first, end, x);
}

}  // namespace detail

FOVEA_NAMESPACE_END
