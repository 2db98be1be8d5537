// SPDX-License-Identifier: MIT
/// \file
/// A key's chance to be among the best of its row, as a function of its loss (Smart Bird, eq. 2 and
/// Figure 4). A loss is -log2(alpha), and for top_k it is -logit. In both cases ascending losses
/// mean descending sampling weights p.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/sketch/select.hpp"
#include "fovea/kernels/sketch/unfused.inl.hpp"
#include "fovea/simd/lane_sums.inl.hpp"
#endif

/// The draw that a key of this loss needs for a score above the p of the loss `theta`. Since s = u
/// p < p, a key whose p is below a score that K keys reach cannot be among the best.
template <SamplingPolicy P, class T>
FOVEA_INLINE Vec<T> least_draw(Vec<T> loss, T theta) {
  if constexpr (P == SamplingPolicy::squared_inverse_log) {
    const Vec<T> ratio = loss * set1(1 / theta);
    return ratio * ratio;
  } else if constexpr (P == SamplingPolicy::inverse_log) {
    return loss * set1(1 / theta);
  } else if constexpr (P == SamplingPolicy::raw) {
    return exp2(loss - set1(theta));
  } else {
    return zero<T>();  // top_k: nothing is drawn
  }
}

/// A loss beyond the largest one, so that keys of any finite loss have about equal chances.
template <SamplingPolicy P, class T>
FOVEA_INLINE T loss_beyond(T largest) {
  if constexpr (P == SamplingPolicy::raw) return largest + 2;
  if constexpr (P == SamplingPolicy::top_k) return largest + (largest < 0 ? -largest : largest) + 1;
  return rounded(2 * largest) + MathConstants<T>::kSmallestNormal;
}

/// The number of n keys that are expected to score above the p of theta. No key of a larger loss
/// can.
template <SamplingPolicy P, class T>
FOVEA_NOINLINE T expected_above(const T* losses, Index n, T theta) {
  Vec<T> sum = zero<T>();
  for (Index j = 0; j < n; j += kLanes<T>) {
    const Vec<T> loss = load(losses + j);
    const Vec<T> chance = set1(T(1)) - least_draw<P>(loss, theta);
    sum = sum + select(loss < set1(theta), chance, zero<T>());
  }
  return sum_of_lanes(sum);
}

/// The score of a draw, in double precision for float, with the same bits at every level.
template <SamplingPolicy P>
FOVEA_INLINE Vec<double> sampling_score(Vec<double> u, Vec<double> loss) {
  if constexpr (P == SamplingPolicy::squared_inverse_log) return u / (loss * loss);
  if constexpr (P == SamplingPolicy::inverse_log) return u / loss;
  if constexpr (P == SamplingPolicy::raw) return u * unfused_exp2(zero<double>() - loss);
  if constexpr (P == SamplingPolicy::top_k) return zero<double>() - loss;
  return u;
}

/// Integers that have the same order as the numbers, except for NaN.
FOVEA_INLINE IntVec<double> ordered_bits(Vec<double> x) {
  const IntVec<double> raw = bits(x);
  const IntVec<double> negative = raw < set1_int<double>(0);
  return {raw.raw ^ (negative.raw & set1_int<double>(0x7fffffffffffffff).raw)};
}

/// The number of n numbers that are at least `least`.
/// \param numbers padded with the smallest integer
FOVEA_INLINE Index count_at_least(const std::int64_t* numbers, Index n, std::int64_t least) {
  const IntVec<double> below = set1_int<double>(least - 1);
  Index count = 0;
  for (Index i = 0; i < n; i += kLanes<double>) {
    count += bit_count(mask_bits(load_int<double>(numbers + i) > below));
  }
  return count;
}

/// Which of n numbers are the K largest: those above `value`, and the first `equal` of those that
/// equal it.
struct LargestNumbers {
  std::int64_t value;
  Index equal;
};

/// Finds the `wanted` largest numbers.
/// \param low at least `wanted` numbers are at least as large as it
/// \param high no number is as large as it
FOVEA_NOINLINE inline LargestNumbers largest_numbers(const std::int64_t* numbers, Index n,
                                                     Index wanted, std::int64_t low,
                                                     std::int64_t high) {
  Index above_high = 0;
  // The distance may exceed a signed integer.
  while (static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) > 1) {
    const std::uint64_t distance =
        static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
    const auto middle = static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + distance / 2);
    const Index count = count_at_least(numbers, n, middle);
    if (count == wanted) return {middle - 1, 0};
    const bool enough = count > wanted;
    low = enough ? middle : low;
    high = enough ? high : middle;
    above_high = enough ? above_high : count;
  }
  return {low, wanted - above_high};
}
