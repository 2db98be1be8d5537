// SPDX-License-Identifier: MIT
/// \file
/// Rows in registers and their products, for bands of few keys: sums in 16 virtual lanes along the
/// width (64 bytes, so that they are the same at every level), then one tree.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/stored_rows.inl.hpp"
#include "fovea/simd/transpose.inl.hpp"
#endif

/// The partial sums of a dot product: as many registers as hold 64 bytes.
inline constexpr int kDotParts = 64 / kVecBytes;

/// Sums as many rows as lanes, by a fixed tree: lane i of the result is the sum of rows[i].
template <int N, class T>
FOVEA_INLINE Vec<T> sum_rows(const Vec<T> (&rows)[N]) {
  if constexpr (N == 1) {
    return rows[0];
  } else {
    Vec<T> half[N / 2];
    FOVEA_UNROLL
    for (int i = 0; i < N / 2; ++i) {
      half[i] =
          interleave<false>(rows[i], rows[i + N / 2]) + interleave<true>(rows[i], rows[i + N / 2]);
    }
    return sum_rows<N / 2>(half);
  }
}

/// Folds the partial sums of a dot product into one register; the sum of its lanes is the product.
template <class T>
FOVEA_INLINE Vec<T> fold_parts(Vec<T> (&part)[kDotParts]) {
  if constexpr (kDotParts == 4) {
    part[0] = part[0] + part[2];
    part[1] = part[1] + part[3];
  }
  if constexpr (kDotParts >= 2) part[0] = part[0] + part[1];
  return part[0];
}

/// One row in N registers.
template <int N, class T>
struct RegisterRow {
  Vec<T> at[N];

  FOVEA_INLINE void clear() {
    FOVEA_UNROLL
    for (int x = 0; x < N; ++x) at[x] = zero<T>();
  }
  FOVEA_INLINE void load_from(const T* row) {
    FOVEA_UNROLL
    for (int x = 0; x < N; ++x) at[x] = load(row + x * kLanes<T>);
  }
  FOVEA_INLINE void store_scaled(T* row, T factor) const {
    FOVEA_UNROLL
    for (int x = 0; x < N; ++x) store(row + x * kLanes<T>, at[x] * set1(factor));
  }
  FOVEA_INLINE void scale(T factor) {
    FOVEA_UNROLL
    for (int x = 0; x < N; ++x) at[x] = at[x] * set1(factor);
  }
  FOVEA_INLINE void add_weighted(T weight, const RegisterRow& row) {
    FOVEA_UNROLL
    for (int x = 0; x < N; ++x) at[x] = fma(set1(weight), row.at[x], at[x]);
  }
  FOVEA_INLINE Vec<T> products(const RegisterRow& other) const {
    Vec<T> part[kDotParts];
    FOVEA_UNROLL
    for (int p = 0; p < kDotParts; ++p) part[p] = zero<T>();
    FOVEA_UNROLL
    for (int x = 0; x < N; ++x) {
      part[x % kDotParts] = fma(at[x], other.at[x], part[x % kDotParts]);
    }
    return fold_parts(part);
  }
};

/// The product of a query with a key of any width and column stride, as partial sums in lanes.
/// \param q [width], scaled, with zeros up to a multiple of 64 bytes
template <class T>
FOVEA_INLINE Vec<T> products_of(const T* q, const T* key, Index column, Index width) {
  Vec<T> part[kDotParts];
  FOVEA_UNROLL
  for (int p = 0; p < kDotParts; ++p) part[p] = zero<T>();
  for (Index c = 0; c < width; c += kDotParts * kLanes<T>) {
    FOVEA_UNROLL
    for (int p = 0; p < kDotParts; ++p) {
      const Index at = c + p * kLanes<T>;
      if (at < width) part[p] = fma(load(q + at), load_columns(key, column, at, width), part[p]);
    }
  }
  return fold_parts(part);
}
