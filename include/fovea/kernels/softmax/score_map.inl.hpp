// SPDX-License-Identifier: MIT
/// \file
/// The score map of a head (score_map.hpp) on vectors of pairs. The operations are the same with
/// queries or keys in the lanes. Logits are half-logits of base 2, as in tile.inl.hpp.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/score_map.hpp"
#include "fovea/simd/philox.inl.hpp"
#include "fovea/simd/softmax_weight.inl.hpp"
#endif

/// The soft cap c of half-logits of base 2, and 2 / c.
template <class T>
struct SoftCapFactors {
  T cap;
  T twice_inverse;
};

template <class T>
FOVEA_INLINE SoftCapFactors<T> cap_factors(T soft_cap) {
  const T cap = logit_factor(soft_cap);
  return {cap, T{2} / cap};
}

/// em / (em + 2) for em in [-1, 0] without a slow division: the best cubic for 1 / (em + 2), with
/// error 1 / 577, refined by steps that cube the error.
template <class T>
FOVEA_INLINE Vec<T> tanh_quotient(Vec<T> em) {
  constexpr T inverse_of[] = {T(1632) / 577, T(-1696) / 577, T(768) / 577, T(-128) / 577};
  const Vec<T> sum = em + set1<T>(2);
  Vec<T> inverse = polynomial(sum, inverse_of);
  FOVEA_UNROLL
  for (int step = 0; step < (sizeof(T) == 4 ? 1 : 2); ++step) {
    const Vec<T> lost = fma(Vec<T>{-sum.raw}, inverse, set1<T>(1));
    inverse = fma(inverse, fma(lost, lost, lost), inverse);
  }
  return fma(em, inverse, zero<T>());
}

/// c tanh(t / c). +-c for +-infinity; NaN stays NaN. The error is within 6 ulp; `tanh` is more
/// accurate and slower.
template <class T>
FOVEA_INLINE Vec<T> cap_logits(Vec<T> t, SoftCapFactors<T> c) {
  using C = MathConstants<T>;
  const IntVec<T> sign_mask = set1_int<T>(C::kSignMask);
  // With x = -2 |t / c| = n ln 2 + r, e^x - 1 is 2^n (e^r - 1) + (2^n - 1). For n < 0 the factor
  // 2^n also shrinks the error of r.
  const Vec<T> minus = from_bits<T>(bits(t * set1(c.twice_inverse)) | sign_mask);
  const Vec<T> x = maximum(set1(C::kTanhMin), minus);  // in this order, NaN stays NaN
  const Vec<T> shifted = fma(x, set1(C::kLog2E), set1(C::kMagic));
  const Vec<T> r = fma(shifted - set1(C::kMagic), set1(-C::kLn2), x);
  const Vec<T> power = fma(r * r, polynomial(r, C::kExpm1), r);
  const IntVec<T> one = set1_int<T>(C::kOneBits);
  const Vec<T> scale = from_bits<T>((bits(shifted) << C::kMantissaBits) + one);
  const Vec<T> em = fma(scale, power, scale - set1<T>(1));
  const Vec<T> capped = fma(tanh_quotient(em), set1(c.cap), zero<T>());
  return from_bits<T>((bits(capped) & ~sign_mask) | (bits(t) & sign_mask));
}

/// Logits plus a bias in natural units. Where `hides_pair(bias)` the sum may be NaN.
template <class T>
FOVEA_INLINE Vec<T> add_bias(Vec<T> t, Vec<T> bias) {
  return fma(bias, set1(logit_factor(T{1})), t);
}

template <class T>
FOVEA_INLINE IntVec<T> hides_pair(Vec<T> bias) {
  return bias == set1(kMinusInfinity<T>);
}

/// Logits minus ALiBi.
/// \param factor alibi_factor(slope)
/// \param distance query minus key
template <class T>
FOVEA_INLINE Vec<T> subtract_alibi(Vec<T> t, T factor, IntVec<T> distance) {
  Vec<T> x;
  if constexpr (sizeof(T) == 4) {
    x = {__builtin_convertvector(distance.raw, typename Vec<T>::Raw)};
  } else {  // AVX2 has no such conversion; exact below 2^51
    using C = MathConstants<T>;
    x = from_bits<T>(distance + set1_int<T>(C::kMagicBits)) - set1(C::kMagic);
  }
  x = from_bits<T>(bits(x) & set1_int<T>(~MathConstants<T>::kSignMask));
  return fma(x, set1(factor), t);
}

template <class T>
FOVEA_INLINE T alibi_factor(T slope) {
  return -logit_factor(slope);
}

/// first + step * lane, for float modulo 2^32.
template <class T>
FOVEA_INLINE IntVec<T> lane_positions(Index first, Index step) {
  const Int<T> lane_step = static_cast<Int<T>>(step);
  return set1_int<T>(static_cast<Int<T>>(first)) + IntVec<T>{lane_index<T>().raw * lane_step};
}

/// The dropout of one head, prepared for vectors.
template <class T>
struct DropoutFactors {
  DrawSource source;
  Int<T> below;  // the largest numerator of a draw that drops its weight
  T kept;        // 1 / (1 - p)

  FOVEA_INLINE explicit DropoutFactors(const DropoutMap& map)
      : source{map.seed, static_cast<std::uint32_t>(map.batch),
               static_cast<std::uint32_t>(map.head)},
        kept(static_cast<T>(1 / (1 - map.probability))) {
    // A weight is kept if numerator >= scaled; numerators are integers, and the scaling is exact.
    const double scaled = map.probability * static_cast<double>(Int<T>{1} << kDrawBits<T>);
    const Int<T> whole = static_cast<Int<T>>(scaled);
    below = static_cast<double>(whole) < scaled ? whole : whole - 1;
  }

  /// The factors of the weights of the pairs of positions i and j: 0 or 1 / (1 - p).
  FOVEA_INLINE Vec<T> factor(IntVec<T> i, IntVec<T> j) const {
    const IntVec<T> keeps = draw_numerator<T>(source, i, j) > set1_int<T>(below);
    return select(keeps, set1(kept), zero<T>());
  }
};
