// SPDX-License-Identifier: MIT
/// \file
/// The landmarks of Nystroem attention: means of segments of consecutive rows, and their gradients.
#pragma once

#include <algorithm>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/kernels/layers/table.hpp"
#include "fovea/simd/softmax_constants.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// to += the sum of `count` rows, in their order.
template <class T>
void add_segment(const Matrix<const T>& x, Index count, Index width, T* to) {
  if (x.column == 1) {
    LayerKernels<T>{}.add_rows({x.data, x.row, count, width, to});
    return;
  }
  for (Index i = 0; i < count; ++i) {
    for (Index c = 0; c < width; ++c) to[c] += x.data[i * x.row + c * x.column];
  }
}

/// Writes the mean of `count` rows, which are summed in reduction blocks.
/// \param to [width]   \param chain [width] scratch
template <class T>
void segment_mean(Matrix<const T> x, Index count, Index width, T* to, T* chain) {
  std::fill_n(to, width, T{0});
  for (Index i = 0; i < count; i += kReductionBlock) {
    std::fill_n(chain, width, T{0});
    const Index rows = (std::min)(kReductionBlock, count - i);
    add_segment(x, rows, width, chain);
    x.data += rows == kReductionBlock ? kReductionBlock * x.row : 0;
    for (Index c = 0; c < width; ++c) to[c] += chain[c];
  }
  if (count == 0) return;
  for (Index c = 0; c < width; ++c) to[c] /= static_cast<T>(count);
}

/// Adds the same row to `count` rows. \param row [width]
template <class T>
void add_to_segment(const Matrix<T>& x, Index count, Index width, const T* row) {
  if (x.column == 1) {
    constexpr T one = 1;
    ProductKernels<T>{}.multiply({.a = {&one, 0, 1},
                                  .b = {row, width, 1},
                                  .to = x.data,
                                  .to_row = x.row,
                                  .rows = count,
                                  .columns = width,
                                  .steps = 1,
                                  .add = true});
    return;
  }
  for (Index i = 0; i < count; ++i) {
    for (Index c = 0; c < width; ++c) {
      T& at = x.data[i * x.row + c * x.column];
      at = at + (T{0} + row[c]);  // so that zeros have the signs that the kernel gives
    }
  }
}

}  // namespace detail

FOVEA_NAMESPACE_END
