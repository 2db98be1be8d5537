// SPDX-License-Identifier: MIT
/// \file
/// Conversion between float and binary16 by integers, for machines without an instruction for it.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/vec.inl.hpp"
#endif

/// mask ? a : b per lane.
FOVEA_INLINE IntVec<float> select_int(IntVec<float> mask, IntVec<float> a, IntVec<float> b) {
  return {mask.raw ? a.raw : b.raw};
}

/// a + (half an ulp of the result) - (one bit, if the result is even), so that dropping the lower
/// \p bits of \p a rounds it to nearest even.
FOVEA_INLINE IntVec<float> rounded_to_even(IntVec<float> a, int bits) {
  const IntVec<float> odd = (a >> bits) & set1_int<float>(1);
  return a + odd + set1_int<float>((1 << (bits - 1)) - 1);
}

/// Constants of binary16, as the bits of a float: 8 bits of exponent, 10 bits of fraction followed
/// by 13 that it lacks.
struct Float16Constants {
  static constexpr int kLackedBits = 13;
  static constexpr std::int32_t kSign = 0x8000;                // of binary16 itself
  static constexpr std::int32_t kInfinity = 0x7c00;            // likewise
  static constexpr std::int32_t kQuiet = 0x0200;               // likewise
  static constexpr std::int32_t kBias = (127 - 15) << 23;      // between the two exponents
  static constexpr std::int32_t kSmallest = (127 - 14) << 23;  // 2^-14: the smallest normal number
  static constexpr std::int32_t kBeyond = (127 + 16) << 23;    // 2^16: rounds to infinity
  static constexpr std::int32_t kHalf = 126 << 23;             // 2^-1: its ulp is binary16's least
};

/// Exact for every binary16, with the bits of hardware conversion.
FOVEA_INLINE Vec<float> float16_to_float(IntVec<float> a) {
  using C = Float16Constants;
  const IntVec<float> sign = a & set1_int<float>(C::kSign);
  const IntVec<float> magnitude = a - sign;
  const IntVec<float> shifted = magnitude << C::kLackedBits;
  const IntVec<float> normal = shifted + set1_int<float>(C::kBias);
  // With the exponent of the smallest normal number, a subnormal is too large by that number.
  const IntVec<float> smallest = set1_int<float>(C::kSmallest);
  const Vec<float> subnormal = from_bits<float>(shifted + smallest) - from_bits<float>(smallest);
  const IntVec<float> special = set1_int<float>(C::kInfinity);
  const IntVec<float> nan = magnitude > special;
  const IntVec<float> quiet = nan & set1_int<float>(C::kQuiet << C::kLackedBits);
  const IntVec<float> infinite = (normal + set1_int<float>(C::kBias)) | quiet;
  const IntVec<float> least = set1_int<float>(C::kSmallest - C::kBias);
  const IntVec<float> finite = select_int(shifted < least, bits(subnormal), normal);
  return from_bits<float>(select_int(magnitude < special, finite, infinite) | (sign << 16));
}

/// The reverse. \returns binary16 in the lower 16 bits
FOVEA_INLINE IntVec<float> float_to_float16(Vec<float> a) {
  using C = Float16Constants;
  const IntVec<float> magnitude = bits(a) & set1_int<float>(0x7fffffff);
  const IntVec<float> sign = (bits(a) >> 16) & set1_int<float>(C::kSign);
  // Carries propagate into the exponent, and beyond the largest number into infinity.
  const IntVec<float> normal =
      rounded_to_even(magnitude - set1_int<float>(C::kBias), C::kLackedBits) >> C::kLackedBits;
  // Adding 1/2 rounds to multiples of 2^-24, which are then in the low bits.
  const IntVec<float> half = set1_int<float>(C::kHalf);
  const IntVec<float> subnormal = bits(from_bits<float>(magnitude) + from_bits<float>(half)) - half;
  const IntVec<float> finite =
      select_int(magnitude < set1_int<float>(C::kSmallest), subnormal, normal);
  const IntVec<float> infinity = set1_int<float>(C::kInfinity);
  const IntVec<float> payload = (magnitude >> C::kLackedBits) & set1_int<float>(C::kQuiet * 2 - 1);
  const IntVec<float> nan = payload | set1_int<float>(C::kInfinity | C::kQuiet);
  const IntVec<float> special = select_int(a == a, infinity, nan);
  return select_int(magnitude < set1_int<float>(C::kBeyond), finite, special) | sign;
}
