// SPDX-License-Identifier: MIT
/// \file
/// The arithmetic of a softmax in lanes: from logits to weights, and to the logarithm of their sum.
///
/// Logits are kept as s log2(e) / 2: halved, so that no finite logit overflows and the difference
/// to the maximum doubles exactly in `softmax_weight`.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/math.inl.hpp"
#endif

/// Constants of `softmax_weight`.
template <class T>
struct WeightConstants;
template <>
struct WeightConstants<float> {
  // 1.5 2^23 rounds to an integer; with the exponent's bias, its low bits are an exponent field.
  static constexpr float kRound = 12582912.0F + 127.0F;
  static constexpr float kLowest = -63.5F;  // 2 kLowest has the exponent field 0
  static constexpr int kMantissaBits = 23;
};
template <>
struct WeightConstants<double> {
  static constexpr double kRound = 6755399441055744.0 + 1023.0;  // 1.5 2^52
  static constexpr double kLowest = -511.5;
  static constexpr int kMantissaBits = 52;
};

template <class T>
inline constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();

/// 2^lift 4^d, +0 where its exponent field is 0 or less. NaN stays NaN with any payload: the power
/// of two is multiplied, not added to the bits. \param lift even
template <class T>
FOVEA_INLINE Vec<T> power_of_four(Vec<T> d, int lift) {
  using Constants = WeightConstants<T>;
  const Vec<T> two = set1<T>(2);
  const Vec<T> round = set1(Constants::kRound + static_cast<T>(lift));
  const int half = lift / 2;
  // In this order, so that a NaN in d stays.
  d = maximum(set1(Constants::kLowest - static_cast<T>(half)), d);
  const Vec<T> rounded = fma(d, two, round);
  const Vec<T> fraction = fma(d, two, round - rounded);
  return exp2_fraction(fraction) * from_bits<T>(bits(rounded) << Constants::kMantissaBits);
}

/// 4^d for d <= 0: +0 from 2^-126.5 (float) or 2^-1022.5 (double) down.
template <class T>
FOVEA_INLINE Vec<T> softmax_weight(Vec<T> d) {
  return power_of_four(d, 0);
}

/// 2^lift 4^d for d <= 0: +0 where softmax_weight is, so that no product with a value of 2^-lift or
/// more is subnormal.
template <class T>
FOVEA_INLINE Vec<T> lifted_weight(Vec<T> d, int lift) {
  const IntVec<T> vanishes = d < set1(WeightConstants<T>::kLowest + T{0.25});
  return select(vanishes, zero<T>(), power_of_four(d, lift));
}

/// Either of them, for a lift of 0 or more.
template <class T>
FOVEA_INLINE Vec<T> weight_at_lift(Vec<T> d, int lift) {
  return lift == 0 ? softmax_weight(d) : lifted_weight(d, lift);
}

/// The factor that scales q to half-logits of base 2.
template <class T>
FOVEA_INLINE T logit_factor(T scale) {
  return static_cast<T>(static_cast<double>(scale) * 0.72134752044448170368);  // log2(e) / 2
}

/// 2^power, exactly.
template <class T>
FOVEA_INLINE T power_of_two(int power) {
  T x = 1;
  for (; power > 0; --power) x *= 2;
  for (; power < 0; ++power) x /= 2;
  return x;
}

/// lse in natural units of a running softmax with biased exponents; 2 ln 2 undoes `logit_factor`.
template <class T>
FOVEA_INLINE Vec<T> log_sum_exp(Vec<T> max_logit, Vec<T> sum, int lift = 0) {
  const Vec<T> total = sum * set1(power_of_two<T>(-lift));
  return fma(max_logit, set1(static_cast<T>(1.38629436111989061883)), log(total));
}

/// lse in half-logits of base 2. Rounded before it is subtracted from: a bare product might be
/// fused into that difference.
template <class T>
FOVEA_INLINE Vec<T> lse_shift(Vec<T> lse) {
  return fma(lse, set1(logit_factor(T{1})), zero<T>());
}

/// The part of that logarithm missing in a backward pass that shifts logits by `lse_shift` of the
/// rounded lse: the maximum, and the logarithm relative to it, hold more digits than their sum. 0
/// if lse is not large, or differs from the sum by more than rounding: then it is not the logarithm
/// of only these logits, and is used as given.
template <class T>
FOVEA_INLINE Vec<T> lse_low_part(Vec<T> lse, Vec<T> max_logit, Vec<T> sum, int lift = 0) {
  const IntVec<T> magnitude = set1_int<T>(~MathConstants<T>::kSignMask);
  const Vec<T> shift = lse_shift(lse);
  const Vec<T> total = sum * set1(power_of_two<T>(-lift));
  const Vec<T> low = fma(log(total), set1(logit_factor(T{1})), max_logit - shift);
  constexpr T most = 32 * std::numeric_limits<T>::epsilon();
  const Vec<T> size = from_bits<T>(bits(low) & magnitude);
  const Vec<T> bound = from_bits<T>(bits(shift) & magnitude) * set1(most);
  const Vec<T> lse_size = from_bits<T>(bits(lse) & magnitude);
  return select((set1<T>(kLargeLse) < lse_size) & (size < bound), low, zero<T>());
}

/// The value to subtract from logits with maximum m: m, but 0 for -inf (no key seen, or only logits
/// of -inf), since -inf - -inf is NaN.
template <class T>
FOVEA_INLINE Vec<T> finite_shift(Vec<T> m) {
  return select(m == set1(kMinusInfinity<T>), zero<T>(), m);
}

/// Adds a logit without a value, in natural units. Returns the factor that rescales earlier sums of
/// values to the new maximum, with gradual underflow: it can be far below 1.
template <class T>
FOVEA_INLINE Vec<T> add_sink(T sink, int lift, Vec<T>& max_logit, Vec<T>& sum) {
  const Vec<T> logit = set1(logit_factor(sink));
  const Vec<T> now = maximum(max_logit, logit);
  const Vec<T> shift = finite_shift(now);
  const Vec<T> below = max_logit - shift;
  const Vec<T> sink_below = logit - shift;
  const Vec<T> rescale = exp2(below + below);
  sum = fma(sum, rescale, exp2(sink_below + sink_below) * set1(power_of_two<T>(lift)));
  max_logit = now;
  return rescale;
}
