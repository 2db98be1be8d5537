// SPDX-License-Identifier: MIT
/// \file
/// The steps of the delta rule's backward pass that are not products of matrices: features and
/// their gradients, the triangular solve, and loading and storing rows.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/delta_rule.inl.hpp"
#include "fovea/kernels/linear/grad_products.inl.hpp"
#endif

/// The sum of a_c b_c over a padded row, by one tree at every level.
template <class T>
FOVEA_INLINE T row_product(const T* a, const T* b, Index padded) {
  constexpr int w = kLanes<T>;
  constexpr int vectors = kSumLanes<T> / w;
  Vec<T> sum[vectors];
  FOVEA_UNROLL
  for (int v = 0; v < vectors; ++v) sum[v] = zero<T>();
  for (Index c = 0; c < padded; c += kSumLanes<T>) {
    FOVEA_UNROLL
    for (int v = 0; v < vectors; ++v) {
      sum[v] = fma(load(a + c + v * w), load(b + c + v * w), sum[v]);
    }
  }
  return lane_sum(halves_added(sum));
}

/// As normalised_rows, and computes phi'(m_i) / sum phi(m_i): the factor that maps the gradient of
/// x, projected orthogonally to x, to m.
template <class T>
FOVEA_INLINE void normalised_rows(const FeatureMapArgs<T>& map, const Matrix<const T>& m,
                                  Index count, Index width, T* x, T* slopes) {
  const Index padded = padded_row<T>(width);
  map_rows(map, stored(m), count, width, x, padded);
  slopes_of(map, m, x, count, width, slopes, padded);
  divide_by_sums(x, count, padded, slopes);
}

/// Replaces d_x by the gradient of the input of x. Returns d_x . x.
template <class T>
FOVEA_INLINE T through_features(const T* x, const T* slopes, Index padded, T* d_x) {
  const T along = row_product(d_x, x, padded);
  for (Index c = 0; c < padded; c += kLanes<T>) {
    store(d_x + c, (load(d_x + c) - set1(along)) * load(slopes + c));
  }
  return along;
}

/// Rows times column weights, in scratch; in place without weights if possible.
template <class T>
FOVEA_INLINE Matrix<const T> weighted_rows(const Matrix<const T>& rows, const T* weights,
                                           Index count, Index width, const Matrix<T>& scratch) {
  if (weights == nullptr && are_whole<T>(stored(rows), width)) return rows;
  pack_rows(stored(rows), count, width, scratch.data, scratch.row);
  for (Index c = 0; c < width && weights != nullptr; c += kLanes<T>) {
    const Vec<T> weight = load_columns(weights, 1, c, width);
    for (Index row = 0; row < count; ++row) {
      T* const x = scratch.data + row * scratch.row + c;
      store(x, load(x) * weight);
    }
  }
  return {scratch.data, scratch.row, 1};
}

/// Overwrites rows of a gradient with rows of scratch times `sign`, or adds them.
template <class T>
FOVEA_NOINLINE void write_rows(const T* rows, Index row, T sign, const Matrix<T>& to, Index count,
                               Index width, bool add) {
  const Vec<T> factor = set1(sign);
  for (Index i = 0; i < count; ++i) {
    T* const to_i = to.data + i * to.row;
    for (Index c = 0; c < width; c += kLanes<T>) {
      const Vec<T> before = add ? load_columns(to_i, to.column, c, width) : zero<T>();
      store_columns(to_i, to.column, c, width, fma(load(rows + i * row + c), factor, before));
    }
  }
}

/// Subtracts the lanes from values.
template <class T>
struct ValuesMinus {
  const Matrix<const T> values;
  Index width;
  FOVEA_INLINE Vec<T> operator()(Vec<T> x, Index i, Index c) const {
    return load_columns(values.data + i * values.row, values.column, c, width) - x;
  }
};

/// The rows of a matrix from row `first` on.
template <class T>
FOVEA_INLINE Matrix<T> rows_from(const Matrix<T>& m, Index first) {
  return {m.data + first * m.row, m.row, m.column};
}

/// Computes the rows s of G in descending order, in place of beta_s (...): sums over t in
/// descending order.
template <int V, class T>
struct ErrorGradients {
  const T* weights;  // [count, kDeltaChunk] W
  T* g;              // [count, row]
  Index row;
  Index count;

  template <int R>
  FOVEA_INLINE void run(Index from_end) const {
    const Index first = count - from_end - R;
    const T* const w = weights + first * kDeltaChunk + first;
    T* const rows = g + first * row;
    RegisterBlock<R, V, T> sum;
    sum.clear();
    sum.add_from(rows, row);
    const Index last = from_end + R - 1;
    sum.multiply_add(w + last * kDeltaChunk, 1, -kDeltaChunk, rows + last * row, -row, from_end);
    FOVEA_UNROLL
    for (int t = R - 1; t > 0; --t) {
      FOVEA_UNROLL
      for (int r = 0; r < t; ++r) {
        const Vec<T> factor = set1(w[t * kDeltaChunk + r]);
        FOVEA_UNROLL
        for (int v = 0; v < V; ++v) sum.at[r][v] = fma(factor, sum.at[t][v], sum.at[r][v]);
      }
    }
    sum.store_to(rows, row);
  }
};
