// SPDX-License-Identifier: MIT
/// \file
/// The running sums of the backward pass of linear attention: a matrix and a vector. Chunks are
/// added to the matrix with Kahan compensation, so that it does not drift and needs little memory.
/// The vector is a normaliser, whose chunks are added to a double word as in running_state.inl.hpp,
/// so that denominators are bit-identical to the forward pass; or the sum of the gradients of
/// normalisers, summed from 0 within a segment and then added to a double word.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/grad_products.inl.hpp"
#include "fovea/kernels/linear/running_state.inl.hpp"
#endif

template <class T>
class GradSums {
 public:
  /// Elements of scratch.
  static Index elements(Index rows, Index row, Index vector) { return 2 * rows * row + 4 * vector; }

  /// Zeroes both, or continues with their contents.
  /// \param row elements of a matrix row, in whole cache lines
  /// \param vector elements of the vector, in whole cache lines
  /// \param scratch elements(...) elements
  GradSums(Index rows, Index row, Index vector, GradScratch<T> scratch, bool goes_on = false)
      : rows_(rows), row_(row), matrix_(scratch.take(rows * row)), lost_(scratch.take(rows * row)) {
    vector_.width = 0;
    vector_.value_row = 0;
    vector_.row = vector;
    vector_.elements = vector;
    vector_.high = scratch.take(vector);
    vector_.low = scratch.take(vector);
    vector_.local = scratch.take(vector);
    vector_.read = scratch.take(vector);
    if (goes_on) return;
    clear_elements(matrix_, rows * row);
    clear_elements(lost_, rows * row);
    clear_elements(vector_.high, 4 * vector);
  }

  const T* matrix() const { return matrix_; }       // [rows, row]
  const T* vector() const { return vector_.read; }  // [vector]

  /// Adds sum_s a[i, s] b[s, c] to matrix[i, c], in one chain.
  /// \param a scalars, at strides a_row and a_step
  /// \param b [steps, row], steps <= kLinearChunk
  FOVEA_NOINLINE void add_products(const T* a, Index a_row, Index a_step, const T* b, Index steps,
                                   GradPrefetcher<T>& ahead) {
    const RowsProduct<T> p{a, a_row, a_step, b, row_, matrix_, row_, steps, &ahead};
    for_register_blocks<T>(rows_, row_, [&]<int V>(Index c) { return Columns<V>{p, lost_, c}; });
  }

  /// Adds x to the vector, which is a normaliser.
  void add_to_normaliser(const T* x) {
    add_to_words(vector_.high, vector_.low, x, vector_.row);
    copy_elements(vector_.high, vector_.row, vector_.read);
  }

  /// Adds x to the segment of the vector.
  FOVEA_NOINLINE void add(const T* x) {
    for (Index c = 0; c < vector_.row; c += kLanes<T>) {
      const Vec<T> local = load(vector_.local + c) + load(x + c);
      store(vector_.local + c, local);
      store(vector_.read + c, load(vector_.high + c) + local);
    }
  }

  /// Ends a segment of the vector.
  void fold() { fold_segment(vector_); }

 private:
  template <int V>
  struct Columns {
    const RowsProduct<T>& p;
    T* lost;
    Index c;

    template <int R>
    FOVEA_INLINE void run(Index i) const {
      p.ahead->prefetch();
      const Index row = p.to_row;
      T* const to = p.to + i * row + c;
      T* const lost_i = lost + i * row + c;
      RegisterBlock<R, V, T> block;
      block.clear();
      block.multiply_add(p.a + i * p.a_row, p.a_row, p.a_step, p.b + c, row, p.steps);
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) {
        FOVEA_UNROLL
        for (int v = 0; v < V; ++v) {
          const Index at = r * row + v * kLanes<T>;
          const Vec<T> before = load(to + at);
          const Vec<T> x = block.at[r][v] - load(lost_i + at);
          const Vec<T> sum = before + x;
          store(to + at, sum);
          store(lost_i + at, (sum - before) - x);
        }
      }
    }
  };

  const Index rows_;
  const Index row_;
  T* const matrix_;
  T* const lost_;           // the amount by which `matrix` is too large
  RunningState<T> vector_;  // its normaliser is the vector
};
