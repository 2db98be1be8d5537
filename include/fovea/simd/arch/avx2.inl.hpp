// SPDX-License-Identifier: MIT
/// \file
/// The operations of AVX2 with FMA, and of F16C.

#include "fovea/simd/arch/portable.inl.hpp"

/// For each mask of eight lanes, in a byte each, the lanes whose bits are set, packed.
struct LanesOfMasks {
  constexpr LanesOfMasks() {
    for (unsigned mask = 0; mask < 256; ++mask) {
      int set = 0;
      for (unsigned lane = 0; lane < 8; ++lane) {
        if ((mask >> lane & 1) != 0) of[mask][set++] = static_cast<std::uint8_t>(lane);
      }
    }
  }
  std::uint8_t of[256][8] = {};
};
inline constexpr LanesOfMasks kLanesOfMasks;

struct Avx2 : Portable {
  static constexpr int kAccumulators = 12;
  static constexpr int kFullBlockSteps = 4;
  static constexpr bool kHasFma = true;

  template <class T>
  static FOVEA_INLINE Vec<T> load_first(const T* p, Index n) {
    const IntVec<T> mask = lane_index<T>() < set1_int<T>(static_cast<Int<T>>(n));
    if constexpr (sizeof(T) == 4) {
      return {_mm256_maskload_ps(p, reinterpret_cast<__m256i>(mask.raw))};
    } else {
      return {_mm256_maskload_pd(p, reinterpret_cast<__m256i>(mask.raw))};
    }
  }

  static FOVEA_INLINE Vec<float> load_pieces(const char* first, Index step) {
    return {_mm256_loadu2_m128(reinterpret_cast<const float*>(first + step),
                               reinterpret_cast<const float*>(first))};
  }

  template <class T>
  static FOVEA_INLINE Vec<T> fma(Vec<T> a, Vec<T> b, Vec<T> c) {
    if constexpr (sizeof(T) == 4) return {_mm256_fmadd_ps(a.raw, b.raw, c.raw)};
    if constexpr (sizeof(T) == 8) return {_mm256_fmadd_pd(a.raw, b.raw, c.raw)};
  }
  template <class T>
  static FOVEA_INLINE Vec<T> square_root(Vec<T> a) {
    if constexpr (sizeof(T) == 4) return {_mm256_sqrt_ps(a.raw)};
    if constexpr (sizeof(T) == 8) return {_mm256_sqrt_pd(a.raw)};
  }
  template <class T>
  static FOVEA_INLINE Vec<T> maximum(Vec<T> a, Vec<T> b) {
    if constexpr (sizeof(T) == 4) return {_mm256_max_ps(a.raw, b.raw)};
    if constexpr (sizeof(T) == 8) return {_mm256_max_pd(a.raw, b.raw)};
  }
  template <class T>
  static FOVEA_INLINE Vec<T> minimum(Vec<T> a, Vec<T> b) {
    if constexpr (sizeof(T) == 4) return {_mm256_min_ps(a.raw, b.raw)};
    if constexpr (sizeof(T) == 8) return {_mm256_min_pd(a.raw, b.raw)};
  }

  template <class T>
  static FOVEA_INLINE std::uint32_t mask_bits(IntVec<T> mask) {
    if constexpr (sizeof(T) == 4) {
      return static_cast<std::uint32_t>(_mm256_movemask_ps(reinterpret_cast<__m256>(mask.raw)));
    } else {
      return static_cast<std::uint32_t>(_mm256_movemask_pd(reinterpret_cast<__m256d>(mask.raw)));
    }
  }

  /// The permutation that moves the lanes whose bits are set to the front, in units of 32 bits.
  template <class T>
  static FOVEA_INLINE __m256i lanes_first(std::uint32_t bits) {
    // A 64-bit lane is two units, with bits at twice the index.
    if constexpr (sizeof(T) == 8)
      bits = ((bits & 1) | (bits & 2) << 1 | (bits & 4) << 2 | (bits & 8) << 3) * 3;
    return _mm256_cvtepu8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kLanesOfMasks.of[bits])));
  }
  template <class T>
  static FOVEA_INLINE void store_lanes(T* p, Vec<T> a, std::uint32_t bits) {
    const __m256i order = lanes_first<T>(bits);
    const auto lanes = reinterpret_cast<__m256>(a.raw);
    store(p,
          Vec<T>{reinterpret_cast<typename Vec<T>::Raw>(_mm256_permutevar8x32_ps(lanes, order))});
  }
  template <class T>
  static FOVEA_INLINE void store_lanes_int(Int<T>* p, IntVec<T> a, std::uint32_t bits) {
    const __m256i order = lanes_first<T>(bits);
    const auto lanes = reinterpret_cast<__m256i>(a.raw);
    store_int<T>(
        p, {reinterpret_cast<typename IntVec<T>::Raw>(_mm256_permutevar8x32_epi32(lanes, order))});
  }

  static FOVEA_INLINE LowHalves multiply_low(LowHalves a, LowHalves b) {
    return {reinterpret_cast<LowHalves::Raw>(
        _mm256_mul_epu32(reinterpret_cast<__m256i>(a.raw), reinterpret_cast<__m256i>(b.raw)))};
  }

  static FOVEA_INLINE IntVec<float> widened(ShortVec a) {
    const auto lanes = reinterpret_cast<__m128i>(a.raw);
    return {reinterpret_cast<IntVec<float>::Raw>(_mm256_cvtepu16_epi32(lanes))};
  }

  // A unit compiled for AVX2 without F16C converts like the baseline.
#if FOVEA_UNIT_LEVEL < 3 || defined(__F16C__)
  static FOVEA_INLINE Vec<float> from_float16(ShortVec a) {
    return {_mm256_cvtph_ps(reinterpret_cast<__m128i>(a.raw))};
  }
  static FOVEA_INLINE ShortVec to_float16(Vec<float> a) {
    constexpr int nearest_even = 0;
    return {reinterpret_cast<ShortVec::Raw>(_mm256_cvtps_ph(a.raw, nearest_even))};
  }
#else
  static FOVEA_INLINE Vec<float> from_float16(ShortVec a) { return float16_to_float(widened(a)); }
#endif
};
