// SPDX-License-Identifier: MIT
/// \file
/// The operations of AVX-512 F, BW, DQ, VL and CD. Forms with an all-lanes mask avoid warnings from
/// GCC 12's own headers.

#include "fovea/simd/arch/portable.inl.hpp"

struct Avx512 : Portable {
  static constexpr int kRegisters = 32;
  static constexpr int kAccumulators = 16;
  static constexpr int kFullBlockSteps = 8;
  static constexpr int kSmallBlockSteps = 2;
  static constexpr int kWeightSteps = 4;
  static constexpr int kStateVectors = 4;
  static constexpr bool kHasFma = true;

  template <class T>
  static FOVEA_INLINE Vec<T> load_first(const T* p, Index n) {
    const auto mask = static_cast<std::uint32_t>((1U << n) - 1U);
    if constexpr (sizeof(T) == 4) {
      return {_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), p)};
    } else {
      return {_mm512_maskz_loadu_pd(static_cast<__mmask8>(mask), p)};
    }
  }

  static FOVEA_INLINE Vec<float> load_pieces(const char* first, Index step) {
    return joined(load_two_pieces(first, step), load_two_pieces(first + 2 * step, step));
  }
  static FOVEA_INLINE Vec<float> load_halves(const char* first, Index step) {
    return joined(load_half(first), load_half(first + step));
  }

  template <class T>
  static FOVEA_INLINE Vec<T> fma(Vec<T> a, Vec<T> b, Vec<T> c) {
    if constexpr (sizeof(T) == 4) return {_mm512_fmadd_ps(a.raw, b.raw, c.raw)};
    if constexpr (sizeof(T) == 8) return {_mm512_fmadd_pd(a.raw, b.raw, c.raw)};
  }
  template <class T>
  static FOVEA_INLINE Vec<T> square_root(Vec<T> a) {
    if constexpr (sizeof(T) == 4) return {_mm512_maskz_sqrt_ps(kAll16, a.raw)};
    if constexpr (sizeof(T) == 8) return {_mm512_maskz_sqrt_pd(kAll8, a.raw)};
  }
  template <class T>
  static FOVEA_INLINE Vec<T> maximum(Vec<T> a, Vec<T> b) {
    if constexpr (sizeof(T) == 4) return {_mm512_maskz_max_ps(kAll16, a.raw, b.raw)};
    if constexpr (sizeof(T) == 8) return {_mm512_maskz_max_pd(kAll8, a.raw, b.raw)};
  }
  template <class T>
  static FOVEA_INLINE Vec<T> minimum(Vec<T> a, Vec<T> b) {
    if constexpr (sizeof(T) == 4) return {_mm512_maskz_min_ps(kAll16, a.raw, b.raw)};
    if constexpr (sizeof(T) == 8) return {_mm512_maskz_min_pd(kAll8, a.raw, b.raw)};
  }

  template <class T>
  static FOVEA_INLINE Vec<T> scale_by_shifted(Vec<T> p, Vec<T> n, Vec<T> /*shifted*/) {
    if constexpr (sizeof(T) == 4) return {_mm512_maskz_scalef_ps(kAll16, p.raw, n.raw)};
    if constexpr (sizeof(T) == 8) return {_mm512_maskz_scalef_pd(kAll8, p.raw, n.raw)};
  }

  template <class T>
  static FOVEA_INLINE std::uint32_t mask_bits(IntVec<T> mask) {
    const auto lanes = reinterpret_cast<__m512i>(mask.raw);
    if constexpr (sizeof(T) == 4) return _mm512_movepi32_mask(lanes);
    if constexpr (sizeof(T) == 8) return _mm512_movepi64_mask(lanes);
  }
  template <class T>
  static FOVEA_INLINE void store_lanes(T* p, Vec<T> a, std::uint32_t bits) {
    if constexpr (sizeof(T) == 4) {
      store(p, Vec<T>{_mm512_maskz_compress_ps(static_cast<__mmask16>(bits), a.raw)});
    } else {
      store(p, Vec<T>{_mm512_maskz_compress_pd(static_cast<__mmask8>(bits), a.raw)});
    }
  }
  template <class T>
  static FOVEA_INLINE void store_lanes_int(Int<T>* p, IntVec<T> a, std::uint32_t bits) {
    const auto lanes = reinterpret_cast<__m512i>(a.raw);
    using Raw = typename IntVec<T>::Raw;
    if constexpr (sizeof(T) == 4) {
      const auto mask = static_cast<__mmask16>(bits);
      store_int<T>(p, {reinterpret_cast<Raw>(_mm512_maskz_compress_epi32(mask, lanes))});
    } else {
      const auto mask = static_cast<__mmask8>(bits);
      store_int<T>(p, {reinterpret_cast<Raw>(_mm512_maskz_compress_epi64(mask, lanes))});
    }
  }

  static FOVEA_INLINE LowHalves multiply_low(LowHalves a, LowHalves b) {
    return {reinterpret_cast<LowHalves::Raw>(_mm512_maskz_mul_epu32(
        kAll8, reinterpret_cast<__m512i>(a.raw), reinterpret_cast<__m512i>(b.raw)))};
  }

  static FOVEA_INLINE ShortVec load_short_first(const void* data, Index n) {
    const auto mask = static_cast<__mmask16>((1U << n) - 1U);
    return {reinterpret_cast<ShortVec::Raw>(_mm256_maskz_loadu_epi16(mask, data))};
  }
  static FOVEA_INLINE void store_short_first(void* data, ShortVec a, Index n) {
    const auto mask = static_cast<__mmask16>((1U << n) - 1U);
    _mm256_mask_storeu_epi16(data, mask, reinterpret_cast<__m256i>(a.raw));
  }
  static FOVEA_INLINE IntVec<float> widened(ShortVec a) {
    const auto lanes = reinterpret_cast<__m256i>(a.raw);
    return {reinterpret_cast<IntVec<float>::Raw>(_mm512_maskz_cvtepu16_epi32(kAll16, lanes))};
  }
  static FOVEA_INLINE ShortVec narrowed(IntVec<float> a) {
    const auto lanes = reinterpret_cast<__m512i>(a.raw);
    return {reinterpret_cast<ShortVec::Raw>(_mm512_maskz_cvtepi32_epi16(kAll16, lanes))};
  }
  static FOVEA_INLINE Vec<float> from_float16(ShortVec a) {
    return {_mm512_maskz_cvtph_ps(kAll16, reinterpret_cast<__m256i>(a.raw))};
  }
  static FOVEA_INLINE ShortVec to_float16(Vec<float> a) {
    constexpr int nearest_even = 0;
    return {reinterpret_cast<ShortVec::Raw>(_mm512_maskz_cvtps_ph(kAll16, a.raw, nearest_even))};
  }

 private:
  static FOVEA_INLINE Vec<float> joined(__m256d low, __m256d high) {
    return {
        _mm512_castpd_ps(_mm512_maskz_insertf64x4(kAll8, _mm512_castpd256_pd512(low), high, 1))};
  }
  static FOVEA_INLINE __m256d load_half(const char* p) {
    return _mm256_castsi256_pd(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static FOVEA_INLINE __m256d load_two_pieces(const char* first, Index step) {
    return _mm256_insertf128_pd(_mm256_castpd128_pd256(load_piece(first)), load_piece(first + step),
                                1);
  }
  static FOVEA_INLINE __m128d load_piece(const char* p) {
    return _mm_castsi128_pd(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }

  static constexpr __mmask16 kAll16 = 0xffff;
  static constexpr __mmask8 kAll8 = 0xff;
};
