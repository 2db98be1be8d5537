// SPDX-License-Identifier: MIT
/// \file
/// exp2, exp, log, tanh and sigmoid of a `Vec<T>`, T float or double. Included by
/// foreach_level.hpp, after vec.inl.hpp.
///
/// Every lane takes the same steps, without a branch; NaN stays NaN; v3 and v4 give the same bits.
/// Products are added only by fma(), so that no compiler chooses the rounding. Range reductions
/// split their constants, in case fma() rounds twice (baseline x86).
///
/// "Error a, b | c, d" is in ulp of the exact result, which may be subnormal: for float, double,
/// and after the bar where fma() rounds twice. Float errors are maxima over all 2^32 arguments,
/// rounded up; double errors bound samples of several million. This file's test checks these
/// numbers.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/vec_operations.inl.hpp"
#endif

/// Constants of T; std functions are not called inside a region.
template <class T>
struct SpecialValues {
  static constexpr T kSmallestNormal = (std::numeric_limits<T>::min)();
  static constexpr T kInfinity = std::numeric_limits<T>::infinity();
  static constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();
  static constexpr Int<T> kSignMask = (std::numeric_limits<Int<T>>::min)();
};

/// Parameters of the functions for T. Polynomials: Sollya's fpminimax, lowest coefficient first.
template <class T>
struct MathConstants;

template <>
struct MathConstants<float> : SpecialValues<float> {
  static constexpr int kMantissaBits = 23;
  static constexpr std::int32_t kExponentMask = 0x7f800000;
  static constexpr std::int32_t kOneBits = 0x3f800000;
  // 1.5 * 2^23: adding it rounds to an integer, in the low bits.
  static constexpr float kMagic = 12582912.0f;
  static constexpr std::int32_t kMagicBits = 0x4b400000;

  static constexpr float kLog2E = 0x1.715476p0f;
  // ln 2, and its rounding error.
  static constexpr float kLn2 = 0x1.62e43p-1f;
  static constexpr float kLn2Rest = -0x1.05c61p-29f;
  // ln 2 = high + low; high has 15 bits, so that n * high is exact for every exponent n.
  static constexpr float kLn2High = 0x1.62e4p-1f;
  static constexpr float kLn2Low = 0x1.7f7d1cp-20f;

  // Arguments are clamped to these; at and beyond them the result is 0 or infinity.
  static constexpr float kExp2Min = -151.0f;
  static constexpr float kExp2Max = 128.0f;
  static constexpr float kExpMin = -105.0f;
  static constexpr float kExpMax = 89.0f;
  // Of -2|x|; tanh(x) rounds to 1 from 2x = 18.1 on.
  static constexpr float kTanhMin = -20.0f;

  // 2^f on [-0.5, 0.5], constant term 1. Relative error 9.5e-8.
  static constexpr float kExp2[] = {1.0f,           0x1.62e42ap-1f, 0x1.ebf9bap-3f,
                                    0x1.c6b69ap-5f, 0x1.3ceaf8p-7f, 0x1.5bfd58p-10f};
  // (e^r - 1 - r) / r^2 on [-ln(2)/2, ln(2)/2]. Relative error of e^r - 1: 1.4e-8.
  static constexpr float kExpm1[] = {0x1.fffffep-2f, 0x1.5554bp-3f, 0x1.555716p-5f, 0x1.12279ep-7f,
                                     0x1.6b7376p-10f};

  static constexpr std::int32_t kSqrtHalfBits = 0x3f3504f3;
  // Scales every subnormal into the normal range.
  static constexpr float kLift = 0x1p24f;
  static constexpr float kLiftExponent = 24.0f;
  // (log((1 + s) / (1 - s)) - 2 s) / s^3 in z = s^2, |s| <= 3 - sqrt(8). Relative error 3.0e-7,
  // under 1/100 in the logarithm.
  static constexpr float kLog[] = {0x1.55555cp-1f, 0x1.997ba2p-2f, 0x1.2ef58ep-2f};
};

template <>
struct MathConstants<double> : SpecialValues<double> {
  static constexpr int kMantissaBits = 52;
  static constexpr std::int64_t kExponentMask = 0x7ff0000000000000;
  static constexpr std::int64_t kOneBits = 0x3ff0000000000000;
  static constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr std::int64_t kMagicBits = 0x4338000000000000;

  static constexpr double kLog2E = 0x1.71547652b82fep0;
  static constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  static constexpr double kLn2Rest = 0x1.abc9e3b39803fp-56;
  static constexpr double kLn2High = 0x1.62e42feep-1;  // 32 bits
  static constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

  static constexpr double kExp2Min = -1076.0;
  static constexpr double kExp2Max = 1024.0;
  static constexpr double kExpMin = -746.0;
  static constexpr double kExpMax = 710.0;
  static constexpr double kTanhMin = -40.0;  // tanh(x) rounds to 1 from 2x = 38.2 on

  // Relative error 5.8e-18.
  static constexpr double kExp2[] = {1.0,
                                     0x1.62e42fefa39efp-1,
                                     0x1.ebfbdff82c5a6p-3,
                                     0x1.c6b08d704a12cp-5,
                                     0x1.3b2ab6fb9fda6p-7,
                                     0x1.5d87fe789e96fp-10,
                                     0x1.4309130f6cbdbp-13,
                                     0x1.ffcbfc6685ee5p-17,
                                     0x1.62bfc6596be6ap-20,
                                     0x1.b52522bc20bcdp-24,
                                     0x1.e61d4332035bap-28,
                                     0x1.e9731780488cp-32};
  // Relative error of e^r - 1: 2.0e-17.
  static constexpr double kExpm1[] = {
      0x1.0000000000005p-1,  0x1.555555555553bp-3,  0x1.5555555552101p-5,  0x1.1111111118834p-7,
      0x1.6c16c17f336c1p-10, 0x1.a01a0177f3ccbp-13, 0x1.a019a6914bad5p-16, 0x1.71de80fa2ab51p-19,
      0x1.28a2a1b4380c2p-22, 0x1.ae77aa79097b3p-26};

  static constexpr std::int64_t kSqrtHalfBits = 0x3fe6a09e667f3bcd;
  static constexpr double kLift = 0x1p54;
  static constexpr double kLiftExponent = 54.0;
  // Relative error 4.6e-16.
  static constexpr double kLog[] = {
      0x1.5555555555558p-1, 0x1.999999999531cp-2, 0x1.2492492defb07p-2, 0x1.c71c62e541c4ep-3,
      0x1.7462b50a97c71p-3, 0x1.39fe4eb5b695ap-3, 0x1.2b5949cfe9c75p-3};
};

/// c[0] + c[1] x + c[2] x^2 + ... by Horner's rule.
template <class T, int N>
FOVEA_INLINE Vec<T> polynomial(Vec<T> x, const T (&c)[N]) {
  Vec<T> p = set1(c[N - 1]);
  FOVEA_UNROLL
  for (int i = N - 2; i >= 0; --i) p = fma(p, x, set1(c[i]));
  return p;
}

/// Clamps x to [low, high]; NaN stays NaN.
template <class T>
FOVEA_INLINE Vec<T> clamp(Vec<T> x, T low, T high) {
  return maximum(set1(low), minimum(set1(high), x));
}

/// p * 2^n for n = floor(n/2) + ceil(n/2), one factor each, so that overflow, and underflow with
/// one rounding, are correct. Only the low bits of \p n are read, as of a number rounded by kMagic.
template <class T>
FOVEA_INLINE Vec<T> scale_by_exp2(Vec<T> p, IntVec<T> n) {
  using C = MathConstants<T>;
  const IntVec<T> one = set1_int<T>(C::kOneBits);
  const IntVec<T> exponent = set1_int<T>(C::kExponentMask | C::kSignMask);
  const IntVec<T> half = (n << (C::kMantissaBits - 1)) & exponent;
  const IntVec<T> rest = (n << C::kMantissaBits) - half;
  return p * from_bits<T>(half + one) * from_bits<T>(rest + one);
}

/// 2^f for f in [-0.5, 0.5], and exactly 1 at 0: only the polynomial (5 fma for float, 11 for
/// double), without range reduction. Not monotone in float. Error 1.97, 0.85 | 2.16, 1.10.
template <class T>
FOVEA_INLINE Vec<T> exp2_fraction(Vec<T> f) {
  return polynomial(f, MathConstants<T>::kExp2);
}

/// A power 2^n (1 + head + tail), |head| <= ln(2)/2, with more precision than T.
template <class T>
struct SplitPower {
  IntVec<T> n;  // in the low bits
  Vec<T> head;
  Vec<T> tail;
};

/// 2^n e^(r + lost), |lost| a rounding error of r.
template <class T>
FOVEA_INLINE SplitPower<T> split_power(IntVec<T> n, Vec<T> r, Vec<T> lost) {
  return {n, r, fma(r * r, polynomial(r, MathConstants<T>::kExpm1), lost)};
}

/// e^x; at n = 0 head is x itself.
template <class T>
FOVEA_INLINE SplitPower<T> split_exp(Vec<T> x) {
  using C = MathConstants<T>;
  const Vec<T> magic = set1(C::kMagic);
  const Vec<T> shifted = fma(x, set1(C::kLog2E), magic);
  const Vec<T> n = shifted - magic;
  const Vec<T> minus_low = set1(-C::kLn2Low);
  const Vec<T> high = fma(n, set1(-C::kLn2High), x);
  const Vec<T> r = fma(n, minus_low, high);
  return split_power(bits(shifted), r, fma(n, minus_low, high - r));
}

/// 2^n (1 + head + tail).
template <class T>
FOVEA_INLINE Vec<T> join(SplitPower<T> power) {
  return scale_by_exp2(set1(T(1)) + (power.head + power.tail), power.n);
}

/// 2^x for every x, monotone; exact for integers; 0 and infinity beyond the range of T, with
/// gradual underflow. exp2(-inf) = +0, exp2(+inf) = +inf. Error 0.89, 0.95 | 1.00, 1.05.
template <class T>
FOVEA_INLINE Vec<T> exp2(Vec<T> x) {
  using C = MathConstants<T>;
  const Vec<T> magic = set1(C::kMagic);
  const Vec<T> clamped = clamp(x, C::kExp2Min, C::kExp2Max);
  const Vec<T> shifted = clamped + magic;
  const Vec<T> f = clamped - (shifted - magic);
  const Vec<T> r = fma(f, set1(C::kLn2), zero<T>());  // a bare product might be fused into join
  const Vec<T> lost = fma(f, set1(C::kLn2), zero<T>() - r);  // 0 where fma() rounds twice
  return join(split_power(bits(shifted), r, fma(f, set1(C::kLn2Rest), lost)));
}

/// e^x for every x, monotone; 0 and infinity beyond the range of T, with gradual underflow.
/// exp(-inf) = +0, exp(+-0) = 1, exp(+inf) = +inf. Error 0.90, 0.95 | 0.91, 0.95.
template <class T>
FOVEA_INLINE Vec<T> exp(Vec<T> x) {
  using C = MathConstants<T>;
  return join(split_exp(clamp(x, C::kExpMin, C::kExpMax)));
}

/// The natural logarithm of every x, subnormals too; monotone. log(+-0) = -inf, log(x < 0) = NaN,
/// log(1) = +0, log(+inf) = +inf. Error 0.77, 0.80 | 0.85, 0.90.
template <class T>
FOVEA_INLINE Vec<T> log(Vec<T> x) {
  using C = MathConstants<T>;
  // x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2)
  const IntVec<T> subnormal = x < set1(C::kSmallestNormal);
  const IntVec<T> sqrt_half = set1_int<T>(C::kSqrtHalfBits);
  const IntVec<T> above = bits(select(subnormal, x * set1(C::kLift), x)) - sqrt_half;
  const Vec<T> exponent =
      from_bits<T>((above >> C::kMantissaBits) + set1_int<T>(C::kMagicBits)) - set1(C::kMagic);
  const Vec<T> k = exponent - select(subnormal, set1(C::kLiftExponent), zero<T>());
  const IntVec<T> mantissa = above & set1_int<T>(~(C::kExponentMask | C::kSignMask));
  const Vec<T> f = from_bits<T>(mantissa + sqrt_half) - set1(T(1));

  // log(1 + f) = f - f^2/2 + s (f^2/2 + z P(z)), s = f / (2 + f), z = s^2
  const Vec<T> s = f / (f + set1(T(2)));
  const Vec<T> z = s * s;
  const Vec<T> minus_half = f * set1(T(-0.5));
  const Vec<T> sum = fma(z, polynomial(z, C::kLog), f * (f * set1(T(0.5))));
  const Vec<T> correction = fma(minus_half, f, fma(s, sum, k * set1(C::kLn2Low)));
  const Vec<T> result = fma(k, set1(C::kLn2High), f + correction);

  const Vec<T> infinity = set1(C::kInfinity);
  const Vec<T> positive = select(x < infinity, result, x);  // infinity and NaN return themselves
  const Vec<T> not_negative = select(x == zero<T>(), zero<T>() - infinity, positive);
  return select(x < zero<T>(), set1(C::kNaN), not_negative);
}

/// s = (e + rest) / (e + rest + k) for |e| <= 1, a rest below one rounding of e, k = 1 or 2: the
/// quotient and its remainder times 1 / (e + k) = (1 - s) / k. Nearly correctly rounded if fma()
/// rounds once.
template <int k, class T>
FOVEA_INLINE Vec<T> fraction_of_sum(Vec<T> e, Vec<T> rest) {
  const Vec<T> sum = e + set1(T(k));
  const Vec<T> lost = (e - (sum - set1(T(k)))) + rest;
  const Vec<T> quotient = e / sum;
  const Vec<T> minus = zero<T>() - quotient;
  const Vec<T> remainder = fma(minus, sum, e) + fma(minus, lost, rest);
  return fma(remainder, (set1(T(1)) + minus) * set1(T(1) / T(k)), quotient);
}

/// The hyperbolic tangent of every x, odd to the bit; monotone where fma() rounds once.
/// tanh(+-0) = +-0, tanh(+-inf) = +-1. Error 0.87, 0.90 | 1.33, 1.40.
template <class T>
FOVEA_INLINE Vec<T> tanh(Vec<T> x) {
  using C = MathConstants<T>;
  const IntVec<T> sign_mask = set1_int<T>(C::kSignMask);
  // e^-2|x| - 1 = (2^n - 1) + 2^n head + 2^n tail = expm1 + rest: each sum keeps its rounding
  // error.
  const Vec<T> negative = from_bits<T>(bits(x) | sign_mask);
  const SplitPower<T> power = split_exp(maximum(set1(C::kTanhMin), negative + negative));
  const Vec<T> scale = from_bits<T>((power.n << C::kMantissaBits) + set1_int<T>(C::kOneBits));
  const Vec<T> one = set1(T(1));
  const Vec<T> base = scale - one;
  const Vec<T> head = fma(scale, power.head, base);
  const Vec<T> lost = fma(scale, power.head, base - head) + (scale - (base + one));
  const Vec<T> tail = fma(scale, power.tail, lost);
  const Vec<T> expm1 = head + tail;
  const Vec<T> result = fraction_of_sum<2>(expm1, (head - expm1) + tail);  // -tanh|x|
  return from_bits<T>((bits(result) & ~sign_mask) | (bits(x) & sign_mask));
}

/// 1 / (1 + e^-x) for every x, with gradual underflow; monotone where fma() rounds once.
/// sigmoid(-inf) = +0, sigmoid(+-0) = 0.5, sigmoid(+inf) = 1. Error 1.48, 1.55 | 1.97, 1.95.
template <class T>
FOVEA_INLINE Vec<T> sigmoid(Vec<T> x) {
  const IntVec<T> sign_mask = set1_int<T>(MathConstants<T>::kSignMask);
  const Vec<T> e = exp(from_bits<T>(bits(x) | sign_mask));  // of -|x|
  const Vec<T> below_half = fraction_of_sum<1>(e, zero<T>());
  return select(x < zero<T>(), below_half, set1(T(1)) - below_half);
}
