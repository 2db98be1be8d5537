// SPDX-License-Identifier: MIT
/// \file
/// Iterates over the columns of a row in vectors, the last of which may be partial.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/lane_sums.inl.hpp"
#include "fovea/simd/wide.inl.hpp"
#endif

/// All lanes of a vector.
template <class T>
struct FullVector {
  FOVEA_INLINE Vec<T> read(const T* p) const { return load(p); }
  FOVEA_INLINE void write(T* p, Vec<T> x) const { store(p, x); }
  /// Elements of U as double, and back, if T is double.
  template <class U>
  FOVEA_INLINE Vec<double> wide(const U* p) const {
    return load_wide(p);
  }
  template <class U>
  FOVEA_INLINE void write_narrow(U* p, Vec<double> x) const {
    store_narrow(p, x);
  }
  /// x, with 0 in absent lanes.
  FOVEA_INLINE Vec<T> only(Vec<T> x) const { return x; }
};

/// The first lanes of a vector; the others are 0 where they are read.
template <class T>
struct PartialVector {
  Index lanes;

  FOVEA_INLINE Vec<T> read(const T* p) const { return load_first(p, lanes); }
  FOVEA_INLINE void write(T* p, Vec<T> x) const { store_first(p, x, lanes); }
  template <class U>
  FOVEA_INLINE Vec<double> wide(const U* p) const {
    return load_wide_first(p, lanes);
  }
  template <class U>
  FOVEA_INLINE void write_narrow(U* p, Vec<double> x) const {
    store_narrow_first(p, x, lanes);
  }
  FOVEA_INLINE Vec<T> only(Vec<T> x) const {
    return select(lane_index<T>() < set1_int<T>(static_cast<Int<T>>(lanes)), x, zero<T>());
  }
};

/// Calls f(c, lanes) for the vectors of a row, where `lanes` is a FullVector, or a PartialVector at
/// the end.
template <class T, class F>
FOVEA_INLINE void for_each_vector(Index width, const F& f) {
  constexpr Index w = kLanes<T>;
  Index c = 0;
  for (; c + w <= width; c += w) f(c, FullVector<T>{});
  if (c < width) f(c, PartialVector<T>{width - c});
}

/// Returns the sums over a row of N numbers for each column: f(c, lanes, add) calls add(n, x) for n
/// < N, where x is 0 in absent lanes. The lanes of a cache line are summed separately, then by
/// halving: the same sums at every level.
template <int N, class T, class F>
FOVEA_INLINE void row_sums(Index width, T (&sums)[N], const F& f) {
  constexpr Index w = kLanes<T>;
  constexpr int vectors = kSumLanes<T> / kLanes<T>;
  Vec<T> sum[N][vectors];
  FOVEA_UNROLL
  for (int n = 0; n < N; ++n) {
    FOVEA_UNROLL
    for (int v = 0; v < vectors; ++v) sum[n][v] = zero<T>();
  }
  Index c = 0;
  for (; c + kSumLanes<T> <= width; c += kSumLanes<T>) {
    FOVEA_UNROLL
    for (int v = 0; v < vectors; ++v) {
      f(c + v * w, FullVector<T>{}, [&](int n, const Vec<T>& x) { sum[n][v] = sum[n][v] + x; });
    }
  }
  FOVEA_UNROLL
  for (int v = 0; v < vectors; ++v) {
    const Index left = width - c - v * w;
    const auto add = [&](int n, const Vec<T>& x) { sum[n][v] = sum[n][v] + x; };
    if (left >= w) {
      f(c + v * w, FullVector<T>{}, add);
    } else if (left > 0) {
      f(c + v * w, PartialVector<T>{left}, add);
    }
  }
  FOVEA_UNROLL
  for (int n = 0; n < N; ++n) sums[n] = total_of_lanes(sum[n]);
}
