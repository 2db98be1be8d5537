// SPDX-License-Identifier: MIT
/// \file
/// The sketch's logits of a few rows, and the normaliser of each row (Smart Bird, eq. 1). All of a
/// row's logits are stored, since the choice rereads them. The bits are the same at every level.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/sketch/unfused.inl.hpp"
#include "fovea/simd/lane_sums.inl.hpp"
#endif

/// The number of keys whose exponentials are summed in T; these sums are added in double.
inline constexpr Index kSketchTile = 512;

/// Adds sum[r] += q[c, r] key[c] for one column of a vector of keys.
template <int R, class T>
FOVEA_INLINE void add_column(const T* q, const T* columns, Index columns_row, Index c,
                             Vec<T> (&sum)[R]) {
  const Vec<T> key = load(columns + c * columns_row);
  FOVEA_UNROLL
  for (int r = 0; r < R; ++r) sum[r] = sum[r] + product(set1(q[c * R + r]), key);
}

/// Writes scores[r, j] = <q[r], key j> for R rows and the vectors of keys [begin, end), and keeps
/// the largest of each row in lanes.
/// \param q [width, R]
/// \tparam D the width; 0: known only at run time
template <int R, int D, class T>
FOVEA_NOINLINE void sketch_logits(const T* q, const T* columns, Index columns_row, Index width,
                                  Index begin, Index end, T* scores, Index scores_row,
                                  Vec<T> (&most)[R]) {
  for (Index j = begin; j < end; j += kLanes<T>) {
    Vec<T> sum[R];
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) sum[r] = zero<T>();
    if constexpr (D != 0) {
      FOVEA_UNROLL
      for (int c = 0; c < D; ++c) add_column(q, columns + j, columns_row, c, sum);
    } else {
      for (Index c = 0; c < width; ++c) add_column(q, columns + j, columns_row, c, sum);
    }
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      store(scores + r * scores_row + j, sum[r]);
      most[r] = maximum(sum[r], most[r]);
    }
  }
}

/// A row's logits, in units of log 2, and the numbers that turn them into weights.
template <class T>
struct SketchRow {
  const T* scores;  // [keys], padded with -infinity to a cache line
  Index keys;
  T most;        // the largest logit
  T normaliser;  // log2 of the sum of 2^(logit - most): 0 where one weight is 1
  bool is_number;

  /// -log2 of the weight, which is at least 0.
  FOVEA_INLINE Vec<T> loss(Vec<T> score) const { return set1(normaliser) + (set1(most) - score); }
};

/// The logarithm to base 2 of the sum of 2^(score - most) over the first `keys` scores.
/// \param keys a multiple of a cache line
template <class T>
FOVEA_NOINLINE double sketch_log_sum(const T* scores, Index keys, T most) {
  constexpr int vectors = kSumLanes<T> / kLanes<T>;
  double sum = 0;
  for (Index tile = 0; tile < keys; tile += kSketchTile) {
    Vec<T> lanes[vectors];
    FOVEA_UNROLL
    for (int v = 0; v < vectors; ++v) lanes[v] = zero<T>();
    const Index end = smaller(keys, tile + kSketchTile);
    for (Index j = tile; j < end; j += kSumLanes<T>) {
      FOVEA_UNROLL
      for (int v = 0; v < vectors; ++v) {
        lanes[v] = lanes[v] + unfused_exp2(load(scores + j + v * kLanes<T>) - set1(most));
      }
    }
    sum += static_cast<double>(total_of_lanes(lanes));
  }
  return __builtin_log2(sum);
}

/// Pads a row with -infinity to a cache line, and returns the padded number of keys.
template <class T>
FOVEA_INLINE Index end_scores(T* scores, Index keys) {
  const Index end = (keys + kSumLanes<T> - 1) / kSumLanes<T> * kSumLanes<T>;
  for (Index j = keys; j < end; ++j) scores[j] = -MathConstants<T>::kInfinity;
  return end;
}

/// Computes a row from the logits of its first `keys` keys.
/// \param before in lanes, the largest logits of the keys before key `begin`
template <class T>
FOVEA_NOINLINE SketchRow<T> sketch_row(T* scores, Index begin, Index keys, const Vec<T>& before) {
  const Index end = end_scores(scores, keys);
  Vec<T> largest = before;
  for (Index j = begin; j < end; j += kLanes<T>) largest = maximum(load(scores + j), largest);
  const T most = largest_lane(largest).raw[0];
  const double log_sum = sketch_log_sum(scores, end, most);
  // The sum is NaN if a logit is NaN or +infinity, or if all of them are -infinity.
  return {scores, keys, most, static_cast<T>(log_sum), log_sum >= 0};
}
