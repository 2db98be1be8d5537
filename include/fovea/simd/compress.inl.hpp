// SPDX-License-Identifier: MIT
/// \file
/// Lists of the lanes that a mask sets.

/// One bit per lane of a mask, lane 0 the lowest.
template <class T>
FOVEA_INLINE std::uint32_t mask_bits(IntVec<T> mask) {
#if FOVEA_LEVEL == 4
  const auto lanes = reinterpret_cast<__m512i>(mask.raw);
  if constexpr (sizeof(T) == 4) return _mm512_movepi32_mask(lanes);
  if constexpr (sizeof(T) == 8) return _mm512_movepi64_mask(lanes);
#elif FOVEA_LEVEL == 3
  if constexpr (sizeof(T) == 4) {
    return static_cast<std::uint32_t>(_mm256_movemask_ps(reinterpret_cast<__m256>(mask.raw)));
  } else {
    return static_cast<std::uint32_t>(_mm256_movemask_pd(reinterpret_cast<__m256d>(mask.raw)));
  }
#elif defined(__SSE2__)
  if constexpr (sizeof(T) == 4) {
    return static_cast<std::uint32_t>(_mm_movemask_ps(reinterpret_cast<__m128>(mask.raw)));
  } else {
    return static_cast<std::uint32_t>(_mm_movemask_pd(reinterpret_cast<__m128d>(mask.raw)));
  }
#else
  std::uint32_t bits = 0;
  FOVEA_UNROLL
  for (int lane = 0; lane < kLanes<T>; ++lane) {
    bits |= static_cast<std::uint32_t>(mask.raw[lane] & 1) << lane;
  }
  return bits;
#endif
}

/// How many bits are set.
FOVEA_INLINE Index bit_count(std::uint32_t bits) { return __builtin_popcount(bits); }

/// Writes the lanes whose bits are set to p, one behind the other. May write a whole vector.
template <class T>
FOVEA_INLINE void store_lanes(T* p, Vec<T> a, std::uint32_t bits) {
#if FOVEA_LEVEL == 4
  if constexpr (sizeof(T) == 4) {
    store(p, Vec<T>{_mm512_maskz_compress_ps(static_cast<__mmask16>(bits), a.raw)});
  } else {
    store(p, Vec<T>{_mm512_maskz_compress_pd(static_cast<__mmask8>(bits), a.raw)});
  }
#else
  alignas(kVecBytes) T lanes[kLanes<T>];
  store(lanes, a);
  for (; bits != 0; bits &= bits - 1) *p++ = lanes[__builtin_ctz(bits)];
#endif
}
template <class T>
FOVEA_INLINE void store_lanes_int(Int<T>* p, IntVec<T> a, std::uint32_t bits) {
#if FOVEA_LEVEL == 4
  const auto lanes = reinterpret_cast<__m512i>(a.raw);
  using Raw = typename IntVec<T>::Raw;
  if constexpr (sizeof(T) == 4) {
    store_int<T>(
        p,
        {reinterpret_cast<Raw>(_mm512_maskz_compress_epi32(static_cast<__mmask16>(bits), lanes))});
  } else {
    store_int<T>(
        p,
        {reinterpret_cast<Raw>(_mm512_maskz_compress_epi64(static_cast<__mmask8>(bits), lanes))});
  }
#else
  alignas(kVecBytes) Int<T> lanes[kLanes<T>];
  store_int<T>(lanes, a);
  for (; bits != 0; bits &= bits - 1) *p++ = lanes[__builtin_ctz(bits)];
#endif
}
