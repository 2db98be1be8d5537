// SPDX-License-Identifier: MIT
/// \file
/// Bounds on the logits of a block of keys without reading the keys: their mean, maximum deviation,
/// variance, and bounds of the sum of their exponentials.
///
/// A block's keys are c + z, with the mean c, |z| within a box and the second moments M of z. So
/// its logits are q c + q z, and q z is 0 on average, has the variance q^T M q and at most the size
/// w = |q| box. With the increasing function phi(x) = (e^x - 1 - x) / x^2, e^x lies between 1 + x +
/// x^2 phi(-w) and 1 + x + x^2 phi(w) for |x| <= w, as in the proof of Bernstein's inequality.
/// Averaged over the block, the term x vanishes.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/sketch/blocks.hpp"
#include "fovea/kernels/sketch/scores.inl.hpp"
#endif

/// Margin for rounding in the logarithm of a sum of exponentials, both in the exhaustive choice and
/// here. For float: sums of at most 36 sequential terms, an exponential, and a difference of logits
/// below kMostAbove have errors below 2^-17 together; rounding a logarithm below 2^5 adds 2^-20.
/// That is less than 2^-16, and it may happen twice.
template <class T>
inline constexpr double kLogSumRoom = sizeof(T) == 4 ? 0x1p-15 : 0x1p-43;

/// The maximum excess of a row's logits over the largest block mean.
inline constexpr double kMostAbove = 32;

/// Margin for rounding in a variance, relative to the square of the reach: one rounding per product
/// of pairs of kMostBlockWidth columns, and a few more.
template <class T>
inline constexpr T kVarianceRoom = sizeof(T) == 4 ? T(0x1p-18) : T(0x1p-46);

/// Computes the factors of the moments in `block_logits` from R queries: q, |q|, pairwise products.
/// \param q [width, R]   \param factors [sketch_moments(width), R], written
template <int R, class T>
FOVEA_INLINE void moment_factors(const T* q, Index width, T* factors) {
  T* pairs = factors + 2 * width * R;
  for (Index c = 0; c < width; ++c) {
    for (int r = 0; r < R; ++r) {
      const T x = q[c * R + r];
      factors[c * R + r] = x;
      factors[(width + c) * R + r] = x < 0 ? -x : x;
    }
    for (Index other = c; other < width; ++other) {
      for (int r = 0; r < R; ++r) *pairs++ = q[c * R + r] * q[other * R + r];
    }
  }
}

/// Adds sum[r] += factors[m, r] moment m, for the numbers [begin, end) of a vector of blocks.
template <int R, class T>
FOVEA_INLINE void add_moments(const T* factors, const T* moments, Index moments_row, Index begin,
                              Index end, Vec<T> (&sum)[R]) {
  FOVEA_UNROLL
  for (int r = 0; r < R; ++r) sum[r] = zero<T>();
  for (Index m = begin; m < end; ++m) {
    const Vec<T> moment = load(moments + m * moments_row);
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) sum[r] = fma(set1(factors[m * R + r]), moment, sum[r]);
  }
}

/// Bounds of a row's blocks: arrays with one number per block.
template <class T>
struct BlockRow {
  T* mean;       // of the logits
  T* most;       // mean + reach: no logit is larger
  T* deviation;  // first the variance of the logits, then its root
  T* least;      // a lower bound of the sum of 2^(logit - top)
  T* gap;        // the gap to the upper bound
};

/// Writes mean, most and variance of the logits of some blocks for R rows.
/// \param D the width; 0: known only at run time
template <int R, int D, class T>
FOVEA_NOINLINE void block_logits(const T* factors, const T* moments, Index moments_row, Index width,
                                 Index blocks, const BlockRow<T> (&rows)[R], Index at) {
  if constexpr (D != 0) width = D;
  for (Index b = 0; b < blocks; b += kLanes<T>) {
    Vec<T> mean[R], reach[R], variance[R];
    add_moments(factors, moments + b, moments_row, 0, width, mean);
    add_moments(factors, moments + b, moments_row, width, 2 * width, reach);
    add_moments(factors, moments + b, moments_row, 2 * width, sketch_moments(width), variance);
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      store(rows[r].mean + at + b, mean[r]);
      store(rows[r].most + at + b, mean[r] + reach[r]);
      store(rows[r].deviation + at + b, variance[r]);
    }
  }
}

/// The largest power in sums of bounds; larger ones are clamped.
inline constexpr int kMostPower = 100;

/// Bounds the sums of 2^(logit - top) over the keys of each block of a row.
/// \param top the largest mean
template <class T>
FOVEA_NOINLINE void bound_sums(const BlockRow<T>& row, Index blocks, T top) {
  constexpr T ln2 = MathConstants<T>::kLn2;
  const Vec<T> keys = set1(T(kBlockKeys));
  for (Index b = 0; b < blocks; b += kLanes<T>) {
    const Vec<T> mean = load(row.mean + b);
    const Vec<T> most = load(row.most + b);
    const Vec<T> w = (most - mean) * set1(ln2);
    const Vec<T> room = w * w * set1(kVarianceRoom<T>);
    const Vec<T> variance = maximum(load(row.deviation + b), zero<T>());
    const Vec<T> v = variance * set1(ln2 * ln2);
    const Vec<T> v_most = v + room;
    const Vec<T> at_mean = exp2(mean - set1(top)) * keys;
    // phi(-w) >= 1/2 - w/6, and phi(w) <= 3/2 / (3 - w) for w < 3.
    const Vec<T> phi_least = maximum(set1(T(0.5)) - w * set1(T(1) / 6), zero<T>());
    const Vec<T> excess_least = at_mean * maximum(v - room, zero<T>()) * phi_least;
    const IntVec<T> is_wide = w > set1(T(2));
    Vec<T> excess = at_mean * v_most * (set1(T(1.5)) / (set1(T(3)) - minimum(w, set1(T(2)))));
    if (any(is_wide)) {
      // phi(w) <= e^w / w^2, and no logit exceeds `most`.
      const Vec<T> at_most = exp2(minimum(most - set1(top), set1(T(kMostPower)))) * keys;
      excess = select(is_wide, at_most * minimum(v_most / (w * w), set1(T(1))), excess);
    }
    store(row.deviation + b, square_root(variance));
    store(row.least + b, at_mean + excess_least);
    store(row.gap + b, excess - excess_least);
  }
}

/// The sum of 2^(logit - top) over n logits, a multiple of a cache line, by tiles.
template <class T>
FOVEA_NOINLINE double sum_of_powers(const T* logits, Index n, T top) {
  double sum = 0;
  constexpr Index adds = 32;
  for (Index tile = 0; tile < n; tile += adds * kLanes<T>) {
    Vec<T> lanes = zero<T>();
    const Index end = smaller(n, tile + adds * kLanes<T>);
    for (Index j = tile; j < end; j += kLanes<T>) {
      lanes = lanes + exp2(load(logits + j) - set1(top));
    }
    sum += static_cast<double>(sum_of_lanes(lanes));
  }
  return sum;
}

/// The logits of a vector of keys, with the bits of `sketch_logits`.
template <int D, class T>
FOVEA_INLINE Vec<T> key_logits(const T* q, const T* columns, Index columns_row, Index width) {
  Vec<T> sum[1] = {zero<T>()};
  if constexpr (D != 0) {
    FOVEA_UNROLL
    for (int c = 0; c < D; ++c) add_column(q, columns, columns_row, c, sum);
  } else {
    for (Index c = 0; c < width; ++c) add_column(q, columns, columns_row, c, sum);
  }
  return sum[0];
}

/// The sum of 2^(logit - top) over the keys of one block.
template <int D, class T>
FOVEA_INLINE T block_sum(const T* q, const T* columns, Index columns_row, Index width, T top) {
  Vec<T> sum = zero<T>();
  for (Index j = 0; j < kBlockKeys; j += kLanes<T>) {
    sum = sum + exp2(key_logits<D>(q, columns + j, columns_row, width) - set1(top));
  }
  return sum_of_lanes(sum);
}

/// The largest of n numbers; -infinity if n is 0. Reads whole vectors.
template <class T>
FOVEA_NOINLINE T largest_of_vectors(const T* x, Index n) {
  Vec<T> most = set1(-MathConstants<T>::kInfinity);
  for (Index i = 0; i < n; i += kLanes<T>) most = maximum(load(x + i), most);
  return largest_lane(most).raw[0];
}

/// Sums the lower bounds and the gaps of n blocks, a multiple of kPadding, by tiles.
template <class T>
FOVEA_NOINLINE void add_bounds(const BlockRow<T>& row, Index n, double& least, double& gap) {
  constexpr Index adds = 32;
  for (Index tile = 0; tile < n; tile += adds * kLanes<T>) {
    Vec<T> lanes[2] = {zero<T>(), zero<T>()};
    const Index end = smaller(n, tile + adds * kLanes<T>);
    for (Index b = tile; b < end; b += kLanes<T>) {
      lanes[0] = lanes[0] + load(row.least + b);
      lanes[1] = lanes[1] + load(row.gap + b);
    }
    least += static_cast<double>(sum_of_lanes(lanes[0]));
    gap += static_cast<double>(sum_of_lanes(lanes[1]));
  }
}

/// The places of those of n numbers (a multiple of kPadding) above `bound`. \returns their number
template <class T>
FOVEA_NOINLINE Index places_above(const T* x, Index n, T bound, Int<T>* places) {
  Index count = 0;
  IntVec<T> at = lane_index<T>();
  for (Index i = 0; i < n; i += kLanes<T>) {
    const std::uint32_t above = mask_bits(load(x + i) > set1(bound));
    store_lanes_int<T>(places + count, at, above);
    count += bit_count(above);
    at = at + set1_int<T>(kLanes<T>);
  }
  return count;
}
