// SPDX-License-Identifier: MIT
/// \file
/// Sums of lanes, in the same order at every level.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/transpose.inl.hpp"
#include "fovea/simd/vec_operations.inl.hpp"
#endif

/// Lanes of sums over columns, at every level.
template <class T>
inline constexpr int kSumLanes = 64 / static_cast<int>(sizeof(T));

/// The sum of the vectors, by halving: the same order at every level.
template <class T>
FOVEA_INLINE Vec<T> halves_added(Vec<T> (&sum)[kSumLanes<T> / kLanes<T>]) {
  FOVEA_UNROLL
  for (int half = kSumLanes<T> / kLanes<T> / 2; half > 0; half /= 2) {
    FOVEA_UNROLL
    for (int v = 0; v < half; ++v) sum[v] = sum[v] + sum[v + half];
  }
  return sum[0];
}

/// a plus itself rotated by \p Shift lanes.
template <int Shift, class T, int... Lane>
FOVEA_INLINE Vec<T> add_rotated(Vec<T> a, std::integer_sequence<int, Lane...> /*lanes*/) {
  return a +
         Vec<T>{__builtin_shufflevector(a.raw, a.raw, ((Lane + Shift) % int{sizeof...(Lane)})...)};
}

/// Lane i of the result is the sum of rows[i mod R]: each by the same halving tree.
template <int R, class T>
FOVEA_INLINE Vec<T> lane_sums(Vec<T> (&rows)[R]) {
  constexpr int w = kLanes<T>;
  using Lanes = std::make_integer_sequence<int, w>;
  FOVEA_UNROLL
  for (int half = R / 2; half > 0; half /= 2) {
    FOVEA_UNROLL
    for (int i = 0; i < half; ++i) {
      rows[i] =
          interleave<false>(rows[i], rows[i + half]) + interleave<true>(rows[i], rows[i + half]);
    }
  }
  static_assert(R == w || 2 * R == w || 4 * R == w);
  if constexpr (R < w) rows[0] = add_rotated<w / 2>(rows[0], Lanes());
  if constexpr (2 * R < w) rows[0] = add_rotated<w / 4>(rows[0], Lanes());
  return rows[0];
}

/// Adds a rotated by half of its lanes, then by a quarter, ...: lane 0 is the sum of all.
template <int Shift, class T>
FOVEA_INLINE Vec<T> add_halves(Vec<T> a) {
  if constexpr (Shift == 0) return a;
  if constexpr (Shift > 0) {
    return add_halves<Shift / 2>(
        add_rotated<Shift>(a, std::make_integer_sequence<int, kLanes<T>>()));
  }
}

/// The sum of all lanes, by halving.
template <class T>
FOVEA_INLINE T sum_of_lanes(Vec<T> a) {
  return add_halves<kLanes<T> / 2>(a).raw[0];
}

/// The sum of the lanes of a cache line, by halving: the same at every level.
template <class T>
FOVEA_INLINE T total_of_lanes(Vec<T> (&sum)[kSumLanes<T> / kLanes<T>]) {
  return sum_of_lanes(halves_added(sum));
}

/// The largest lane, in all lanes.
template <class T>
FOVEA_INLINE Vec<T> largest_lane(Vec<T> a) {
  for (int w = kLanes<T>; w > 1; w /= 2)
    a = maximum(interleave<false>(a, a), interleave<true>(a, a));
  return a;
}
