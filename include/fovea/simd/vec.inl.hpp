// SPDX-License-Identifier: MIT
/// \file
/// The vector type of one level: `Vec<T>` (T float or double) and `IntVec<T>`, the integers of the
/// same width, with the operations that the kernels are made of. Included by foreach_level.hpp.
///
/// Every operation is one IEEE operation per lane (or a select or a permutation), so a chain of
/// them gives the same bits at every width that has a fused multiply-add.

#if FOVEA_LEVEL == 4
inline constexpr int kVecBytes = 64;
inline constexpr int kVecRegisters = 32;
#elif FOVEA_LEVEL == 3
inline constexpr int kVecBytes = 32;
inline constexpr int kVecRegisters = 16;
#elif defined(__aarch64__)
inline constexpr int kVecBytes = 16;
inline constexpr int kVecRegisters = 32;
#else
inline constexpr int kVecBytes = 16;
inline constexpr int kVecRegisters = 16;
#endif

/// Whether this is the level below all others of the unit: it is kept short. Every machine of the
/// last ten years takes another one.
inline constexpr bool kIsCompact = FOVEA_LEVEL == 1 && FOVEA_COMPILE_V3;

/// Lanes of a vector of T.
template <class T>
inline constexpr int kLanes = kVecBytes / static_cast<int>(sizeof(T));

template <class T>
struct IntOf;
template <>
struct IntOf<float> {
  using type = std::int32_t;
};
template <>
struct IntOf<double> {
  using type = std::int64_t;
};

/// The signed integer as wide as T.
template <class T>
using Int = typename IntOf<T>::type;

/// One register of T.
template <class T>
struct Vec {
  using Raw __attribute__((vector_size(kVecBytes))) = T;
  using Unaligned __attribute__((vector_size(kVecBytes), aligned(alignof(T)), may_alias)) = T;
  Raw raw;
};

/// One register of the integers as wide as T; as a mask, lanes are 0 or -1. Sums wrap around.
template <class T>
struct IntVec {
  using Raw __attribute__((vector_size(kVecBytes))) = Int<T>;
  using Wrapping __attribute__((vector_size(kVecBytes))) = std::make_unsigned_t<Int<T>>;
  using Unaligned __attribute__((vector_size(kVecBytes), aligned(alignof(T)), may_alias)) = Int<T>;
  Raw raw;
};

template <class T>
FOVEA_INLINE Vec<T> zero() {
  return {typename Vec<T>::Raw{}};
}

/// All lanes x. Not `Raw{} + x`: that addition would stay, because of -0.
template <class T>
FOVEA_INLINE Vec<T> set1(T x) {
  return {x - typename Vec<T>::Raw{}};
}

template <class T>
FOVEA_INLINE IntVec<T> set1_int(Int<T> x) {
  return {x - typename IntVec<T>::Raw{}};
}

/// Lanes 0, 1, 2, ...
template <class T>
FOVEA_INLINE IntVec<T> lane_index() {
  typename IntVec<T>::Raw lanes{};
  FOVEA_UNROLL
  for (int lane = 0; lane < kLanes<T>; ++lane) lanes[lane] = lane;
  return {lanes};
}

/// \p p need not be aligned.
template <class T>
FOVEA_INLINE Vec<T> load(const T* p) {
  return {*reinterpret_cast<const typename Vec<T>::Unaligned*>(p)};
}

template <class T>
FOVEA_INLINE void store(T* p, Vec<T> a) {
  *reinterpret_cast<typename Vec<T>::Unaligned*>(p) = a.raw;
}

/// Writes the first \p n lanes to p.
template <class T>
FOVEA_INLINE void store_first(T* p, Vec<T> a, Index n) {
  alignas(kVecBytes) T lanes[kLanes<T>];
  store(lanes, a);
  for (Index lane = 0; lane < n; ++lane) p[lane] = lanes[lane];
}

template <class T>
FOVEA_INLINE IntVec<T> load_int(const Int<T>* p) {
  return {*reinterpret_cast<const typename IntVec<T>::Unaligned*>(p)};
}

template <class T>
FOVEA_INLINE void store_int(Int<T>* p, IntVec<T> a) {
  *reinterpret_cast<typename IntVec<T>::Unaligned*>(p) = a.raw;
}

template <class T>
FOVEA_INLINE Vec<T> operator+(Vec<T> a, Vec<T> b) {
  return {a.raw + b.raw};
}
template <class T>
FOVEA_INLINE Vec<T> operator-(Vec<T> a, Vec<T> b) {
  return {a.raw - b.raw};
}
template <class T>
FOVEA_INLINE Vec<T> operator*(Vec<T> a, Vec<T> b) {
  return {a.raw * b.raw};
}
template <class T>
FOVEA_INLINE Vec<T> operator/(Vec<T> a, Vec<T> b) {
  return {a.raw / b.raw};
}
template <class T>
FOVEA_INLINE IntVec<T> operator+(IntVec<T> a, IntVec<T> b) {
  using Wrapping = typename IntVec<T>::Wrapping;
  return {reinterpret_cast<typename IntVec<T>::Raw>(reinterpret_cast<Wrapping>(a.raw) +
                                                    reinterpret_cast<Wrapping>(b.raw))};
}
template <class T>
FOVEA_INLINE IntVec<T> operator-(IntVec<T> a, IntVec<T> b) {
  using Wrapping = typename IntVec<T>::Wrapping;
  return {reinterpret_cast<typename IntVec<T>::Raw>(reinterpret_cast<Wrapping>(a.raw) -
                                                    reinterpret_cast<Wrapping>(b.raw))};
}
template <class T>
FOVEA_INLINE IntVec<T> operator&(IntVec<T> a, IntVec<T> b) {
  return {a.raw & b.raw};
}
template <class T>
FOVEA_INLINE IntVec<T> operator|(IntVec<T> a, IntVec<T> b) {
  return {a.raw | b.raw};
}
template <class T>
FOVEA_INLINE IntVec<T> operator~(IntVec<T> a) {
  return {~a.raw};
}
template <class T>
FOVEA_INLINE IntVec<T> operator<<(IntVec<T> a, int bits) {
  return {a.raw << bits};
}
/// Arithmetic shift.
template <class T>
FOVEA_INLINE IntVec<T> operator>>(IntVec<T> a, int bits) {
  return {a.raw >> bits};
}

/// Lane masks. Ordered comparisons: a NaN gives 0.
template <class T>
FOVEA_INLINE IntVec<T> operator<(Vec<T> a, Vec<T> b) {
  return {a.raw < b.raw};
}
template <class T>
FOVEA_INLINE IntVec<T> operator>(Vec<T> a, Vec<T> b) {
  return {a.raw > b.raw};
}
template <class T>
FOVEA_INLINE IntVec<T> operator==(Vec<T> a, Vec<T> b) {
  return {a.raw == b.raw};
}
template <class T>
FOVEA_INLINE IntVec<T> operator<(IntVec<T> a, IntVec<T> b) {
  return {a.raw < b.raw};
}
template <class T>
FOVEA_INLINE IntVec<T> operator>(IntVec<T> a, IntVec<T> b) {
  return {a.raw > b.raw};
}

/// The first \p n lanes from p, n < lanes, the others 0; reads nothing beyond p + n.
template <class T>
FOVEA_INLINE Vec<T> load_first(const T* p, Index n) {
#if FOVEA_LEVEL == 4
  const auto mask = static_cast<std::uint32_t>((1U << n) - 1U);
  if constexpr (sizeof(T) == 4) {
    return {_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), p)};
  } else {
    return {_mm512_maskz_loadu_pd(static_cast<__mmask8>(mask), p)};
  }
#elif FOVEA_LEVEL == 3
  const IntVec<T> mask = lane_index<T>() < set1_int<T>(static_cast<Int<T>>(n));
  if constexpr (sizeof(T) == 4) {
    return {_mm256_maskload_ps(p, reinterpret_cast<__m256i>(mask.raw))};
  } else {
    return {_mm256_maskload_pd(p, reinterpret_cast<__m256i>(mask.raw))};
  }
#else
  alignas(kVecBytes) T lanes[kLanes<T>] = {};
  for (Index lane = 0; lane < n; ++lane) lanes[lane] = p[lane];
  return load(lanes);
#endif
}

/// mask ? a : b per lane; what stands in the other operand does not matter.
template <class T>
FOVEA_INLINE Vec<T> select(IntVec<T> mask, Vec<T> a, Vec<T> b) {
  return {mask.raw ? a.raw : b.raw};
}

template <class T>
FOVEA_INLINE IntVec<T> bits(Vec<T> a) {
  return {reinterpret_cast<typename IntVec<T>::Raw>(a.raw)};
}
template <class T>
FOVEA_INLINE Vec<T> from_bits(IntVec<T> a) {
  return {reinterpret_cast<typename Vec<T>::Raw>(a.raw)};
}

/// a * b + c, rounded once wherever the level has a fused multiply-add (v3, v4, AArch64,
/// and a baseline that was compiled with -mfma).
template <class T>
FOVEA_INLINE Vec<T> fma(Vec<T> a, Vec<T> b, Vec<T> c) {
#if FOVEA_LEVEL == 4
  if constexpr (sizeof(T) == 4) return {_mm512_fmadd_ps(a.raw, b.raw, c.raw)};
  if constexpr (sizeof(T) == 8) return {_mm512_fmadd_pd(a.raw, b.raw, c.raw)};
#elif FOVEA_LEVEL == 3
  if constexpr (sizeof(T) == 4) return {_mm256_fmadd_ps(a.raw, b.raw, c.raw)};
  if constexpr (sizeof(T) == 8) return {_mm256_fmadd_pd(a.raw, b.raw, c.raw)};
#elif defined(__aarch64__)
  if constexpr (sizeof(T) == 4) return {vfmaq_f32(c.raw, a.raw, b.raw)};
  if constexpr (sizeof(T) == 8) return {vfmaq_f64(c.raw, a.raw, b.raw)};
#elif defined(__FMA__)
  if constexpr (sizeof(T) == 4) return {_mm_fmadd_ps(a.raw, b.raw, c.raw)};
  if constexpr (sizeof(T) == 8) return {_mm_fmadd_pd(a.raw, b.raw, c.raw)};
#else
  return {a.raw * b.raw + c.raw};
#endif
}

/// The larger lane. Where either is NaN: \p b (the rule of x86), on AArch64 NaN.
template <class T>
FOVEA_INLINE Vec<T> maximum(Vec<T> a, Vec<T> b) {
#if FOVEA_LEVEL == 4
  if constexpr (sizeof(T) == 4)
    return {_mm512_maskz_max_ps(static_cast<__mmask16>(-1), a.raw, b.raw)};
  if constexpr (sizeof(T) == 8)
    return {_mm512_maskz_max_pd(static_cast<__mmask8>(-1), a.raw, b.raw)};
#elif FOVEA_LEVEL == 3
  if constexpr (sizeof(T) == 4) return {_mm256_max_ps(a.raw, b.raw)};
  if constexpr (sizeof(T) == 8) return {_mm256_max_pd(a.raw, b.raw)};
#elif defined(__aarch64__)
  if constexpr (sizeof(T) == 4) return {vmaxq_f32(a.raw, b.raw)};
  if constexpr (sizeof(T) == 8) return {vmaxq_f64(a.raw, b.raw)};
#elif defined(__SSE2__)
  if constexpr (sizeof(T) == 4) return {_mm_max_ps(a.raw, b.raw)};
  if constexpr (sizeof(T) == 8) return {_mm_max_pd(a.raw, b.raw)};
#else
  return {a.raw > b.raw ? a.raw : b.raw};
#endif
}

/// The smaller lane. Where either is NaN: \p b (the rule of x86), on AArch64 NaN.
template <class T>
FOVEA_INLINE Vec<T> minimum(Vec<T> a, Vec<T> b) {
#if FOVEA_LEVEL == 4
  if constexpr (sizeof(T) == 4)
    return {_mm512_maskz_min_ps(static_cast<__mmask16>(-1), a.raw, b.raw)};
  if constexpr (sizeof(T) == 8)
    return {_mm512_maskz_min_pd(static_cast<__mmask8>(-1), a.raw, b.raw)};
#elif FOVEA_LEVEL == 3
  if constexpr (sizeof(T) == 4) return {_mm256_min_ps(a.raw, b.raw)};
  if constexpr (sizeof(T) == 8) return {_mm256_min_pd(a.raw, b.raw)};
#elif defined(__aarch64__)
  if constexpr (sizeof(T) == 4) return {vminq_f32(a.raw, b.raw)};
  if constexpr (sizeof(T) == 8) return {vminq_f64(a.raw, b.raw)};
#elif defined(__SSE2__)
  if constexpr (sizeof(T) == 4) return {_mm_min_ps(a.raw, b.raw)};
  if constexpr (sizeof(T) == 8) return {_mm_min_pd(a.raw, b.raw)};
#else
  return {a.raw < b.raw ? a.raw : b.raw};
#endif
}

/// Whether any lane of a mask is set.
template <class T>
FOVEA_INLINE bool any(IntVec<T> mask) {
  Int<T> set = 0;
  FOVEA_UNROLL
  for (int lane = 0; lane < kLanes<T>; ++lane) set |= mask.raw[lane];
  return set != 0;
}
