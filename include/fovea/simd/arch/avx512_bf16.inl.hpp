// SPDX-License-Identifier: MIT
/// \file
/// The operations of AVX-512 with AVX512-BF16.

#include "fovea/simd/arch/avx512.inl.hpp"

struct Avx512Bf16 : Avx512 {
  static constexpr bool kHasFastPairs = true;

  static FOVEA_INLINE Vec<float> dot_pairs(IntVec<float> a, IntVec<float> b, Vec<float> sum) {
    return {_mm512_dpbf16_ps(sum.raw, reinterpret_cast<__m512bh>(a.raw),
                             reinterpret_cast<__m512bh>(b.raw))};
  }
  static FOVEA_INLINE IntVec<float> rounded_neighbours(Vec<float> a, Vec<float> b) {
    return {reinterpret_cast<IntVec<float>::Raw>(_mm512_cvtne2ps_pbh(b.raw, a.raw))};
  }
  static FOVEA_INLINE IntVec<float> rounded_pairs(Vec<float> first, Vec<float> second) {
    using Shorts __attribute__((vector_size(64))) = std::uint16_t;
    const auto halves = reinterpret_cast<Shorts>(rounded_neighbours(first, second).raw);
    return {reinterpret_cast<IntVec<float>::Raw>(
        __builtin_shufflevector(halves, halves, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7,
                                23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31))};
  }
};
