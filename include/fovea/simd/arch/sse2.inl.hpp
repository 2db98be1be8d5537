// SPDX-License-Identifier: MIT
/// \file
/// The operations of SSE2, and of FMA if the unit's flags enable it.

#include "fovea/simd/arch/portable.inl.hpp"

struct Sse2 : Portable {
#if defined(__FMA__)
  static constexpr bool kHasFma = true;

  template <class T>
  static FOVEA_INLINE Vec<T> fma(Vec<T> a, Vec<T> b, Vec<T> c) {
    if constexpr (sizeof(T) == 4) return {_mm_fmadd_ps(a.raw, b.raw, c.raw)};
    if constexpr (sizeof(T) == 8) return {_mm_fmadd_pd(a.raw, b.raw, c.raw)};
  }
#endif
  template <class T>
  static FOVEA_INLINE Vec<T> square_root(Vec<T> a) {
    if constexpr (sizeof(T) == 4) return {_mm_sqrt_ps(a.raw)};
    if constexpr (sizeof(T) == 8) return {_mm_sqrt_pd(a.raw)};
  }
  template <class T>
  static FOVEA_INLINE Vec<T> maximum(Vec<T> a, Vec<T> b) {
    if constexpr (sizeof(T) == 4) return {_mm_max_ps(a.raw, b.raw)};
    if constexpr (sizeof(T) == 8) return {_mm_max_pd(a.raw, b.raw)};
  }
  template <class T>
  static FOVEA_INLINE Vec<T> minimum(Vec<T> a, Vec<T> b) {
    if constexpr (sizeof(T) == 4) return {_mm_min_ps(a.raw, b.raw)};
    if constexpr (sizeof(T) == 8) return {_mm_min_pd(a.raw, b.raw)};
  }

  template <class T>
  static FOVEA_INLINE std::uint32_t mask_bits(IntVec<T> mask) {
    if constexpr (sizeof(T) == 4) {
      return static_cast<std::uint32_t>(_mm_movemask_ps(reinterpret_cast<__m128>(mask.raw)));
    } else {
      return static_cast<std::uint32_t>(_mm_movemask_pd(reinterpret_cast<__m128d>(mask.raw)));
    }
  }

  static FOVEA_INLINE LowHalves multiply_low(LowHalves a, LowHalves b) {
    return {reinterpret_cast<LowHalves::Raw>(
        _mm_mul_epu32(reinterpret_cast<__m128i>(a.raw), reinterpret_cast<__m128i>(b.raw)))};
  }
};
