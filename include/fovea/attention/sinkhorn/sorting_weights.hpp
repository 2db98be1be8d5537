// SPDX-License-Identifier: MIT
/// \file
/// The weights that sort blocks: sorting logits, normalised in log space.
#pragma once

#include <algorithm>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/sinkhorn/options.hpp"
#include "fovea/kernels/sorting/table.hpp"

FOVEA_NAMESPACE_BEGIN

/// Computes exp(R) from the sorting logits of one key head, after iterations that normalise rows
/// and then columns, and the gradient of R from that of exp(R). Matrices are [blocks, blocks],
/// dense.
template <class T>
class SortingWeights {
 public:
  /// \param iterations n
  explicit SortingWeights(Index iterations) : iterations_(iterations) {}

  /// Elements of scratch for `compute`.
  static Index scratch_elements(Index blocks) { return 2 * blocks * blocks; }
  /// Elements of scratch for `differentiate`: the results of all steps, and a gradient.
  static Index grad_scratch_elements(Index iterations, Index blocks) {
    return (2 * iterations + 2) * blocks * blocks;
  }

  /// Writes the weights.
  /// \param logits R   \param scratch scratch_elements(blocks)
  void compute(const Matrix<const T>& logits, Index blocks, T* weights, T* scratch) const {
    T* const other = scratch + blocks * blocks;
    detail::copy_rows(logits, blocks, blocks, Matrix<T>{scratch, blocks, 1});
    for (Index step = 0; step < iterations_; ++step) {
      normalise_rows(blocks, scratch, other);
      transpose(other, blocks, scratch);
      normalise_columns(blocks, scratch);
    }
    SortingLogitKernels<T>{}.exponentials({scratch, weights, blocks * blocks});
  }

  /// Writes the gradient of the logits.
  /// \param d_weights the gradient of the weights, overwritten
  /// \param scratch grad_scratch_elements(iterations, blocks)
  void differentiate(const Matrix<const T>& logits, Index blocks, const T* weights, T* d_weights,
                     const Matrix<T>& d_logits, T* scratch) const {
    const Index size = blocks * blocks;
    T* const other = scratch + (2 * iterations_ + 1) * size;
    detail::copy_rows(logits, blocks, blocks, Matrix<T>{scratch, blocks, 1});
    for (Index step = 0; step < iterations_; ++step) {
      T* const rows = scratch + (2 * step + 1) * size;  // the iteration's rows, transposed
      T* const columns = rows + size;
      normalise_rows(blocks, scratch + 2 * step * size, rows);
      transpose(rows, blocks, columns);
      normalise_columns(blocks, columns);
    }
    for (Index i = 0; i < size; ++i) d_weights[i] *= weights[i];
    for (Index step = iterations_; step-- > 0;) {
      T* const rows = scratch + (2 * step + 1) * size;
      SortingLogitKernels<T>{}.log_columns({rows + size, d_weights, blocks, blocks});
      transpose(d_weights, blocks, other);
      SortingLogitKernels<T>{}.log_columns({rows, other, blocks, blocks});
      transpose(other, blocks, d_weights);
    }
    detail::copy_rows(Matrix<T>{d_weights, blocks, 1}, blocks, blocks, d_logits);
  }

  /// Transposes a matrix.
  static void transpose(const T* from, Index blocks, T* to) {
    constexpr Index tile = 16;
    for (Index u = 0; u < blocks; u += tile) {
      for (Index w = 0; w < blocks; w += tile) {
        for (Index i = u; i < (std::min)(u + tile, blocks); ++i) {
          for (Index j = w; j < (std::min)(w + tile, blocks); ++j) {
            to[j * blocks + i] = from[i * blocks + j];
          }
        }
      }
    }
  }

 private:
  /// Normalises the rows of a matrix. \param to the transposed result
  static void normalise_rows(Index blocks, const T* from, T* to) {
    transpose(from, blocks, to);
    normalise_columns(blocks, to);
  }
  static void normalise_columns(Index blocks, T* matrix) {
    SortingLogitKernels<T>{}.log_columns({matrix, nullptr, blocks, blocks});
  }

  Index iterations_;
};

FOVEA_NAMESPACE_END
