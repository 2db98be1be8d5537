// SPDX-License-Identifier: MIT
/// \file
/// Arithmetic that rounds after every operation, to give the same bits at every level, even without
/// a fused multiply-add. It is used for choices: of two nearly equal keys, every machine must
/// choose the same one.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/integers.inl.hpp"
#include "fovea/simd/math.inl.hpp"
#endif

/// a * b, rounded before anything is added to it.
template <class T>
FOVEA_INLINE Vec<T> product(Vec<T> a, Vec<T> b) {
  // A bare product might be fused into a following sum.
  return fma(a, b, zero<T>());
}

/// 2^x for x <= 0. Subnormal results become the smallest normal number; NaN stays NaN.
template <class T>
FOVEA_INLINE Vec<T> unfused_exp2(Vec<T> x) {
  using C = MathConstants<T>;
  constexpr T least = sizeof(T) == 4 ? T(-126) : T(-1022);
  const Vec<T> clamped = maximum(set1(least), x);
  const Vec<T> shifted = clamped + set1(C::kMagic);
  const Vec<T> f = clamped - (shifted - set1(C::kMagic));
  constexpr int terms = static_cast<int>(sizeof(C::kExp2) / sizeof(T));
  Vec<T> p = set1(C::kExp2[terms - 1]);
  FOVEA_UNROLL
  for (int i = terms - 2; i >= 0; --i) p = product(p, f) + set1(C::kExp2[i]);
  return product(p, from_bits<T>((bits(shifted) << C::kMantissaBits) + set1_int<T>(C::kOneBits)));
}
