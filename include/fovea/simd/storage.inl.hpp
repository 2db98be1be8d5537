// SPDX-License-Identifier: MIT
/// \file
/// Loads and stores of a `Vec<T>` in any `Storage`: elements of 16 bits become float and back.
/// Included by foreach_level.hpp, after vec.inl.hpp.
///
/// Loads are exact, stores round to nearest even: beyond the largest number to infinity, below the
/// normal ones to the subnormal ones. NaN stays NaN, with the upper bits of its payload, and every
/// conversion but that from bfloat16 makes it quiet. Every level gives the same bits.

// A unit compiled for AVX2 without F16C converts as the baseline does.
#if FOVEA_LEVEL == 3 && (FOVEA_UNIT_LEVEL < 3 || defined(__F16C__))
#define FOVEA_LEVEL_HAS_F16C 1
#else
#define FOVEA_LEVEL_HAS_F16C 0
#endif

/// 16 bits for each lane of a Vec<float>.
struct ShortVec {
  using Raw __attribute__((vector_size(kVecBytes / 2))) = std::uint16_t;
  using Unaligned
      __attribute__((vector_size(kVecBytes / 2), aligned(alignof(std::uint16_t)), may_alias)) =
          std::uint16_t;
  Raw raw;
};

/// \p data need not be aligned to more than an element.
FOVEA_INLINE ShortVec load_short(const void* data) {
  return {*static_cast<const ShortVec::Unaligned*>(data)};
}

FOVEA_INLINE void store_short(void* data, ShortVec a) {
  *static_cast<ShortVec::Unaligned*>(data) = a.raw;
}

/// The first \p n lanes from data, the others 0; reads nothing beyond them.
FOVEA_INLINE ShortVec load_short_first(const void* data, Index n) {
#if FOVEA_LEVEL == 4
  const auto mask = static_cast<__mmask16>((1U << n) - 1U);
  return {reinterpret_cast<ShortVec::Raw>(_mm256_maskz_loadu_epi16(mask, data))};
#else
  alignas(kVecBytes / 2) std::uint16_t lanes[kLanes<float>] = {};
  __builtin_memcpy(lanes, data, static_cast<std::size_t>(n) * sizeof(lanes[0]));
  return load_short(lanes);
#endif
}

/// Writes the first \p n lanes to data.
FOVEA_INLINE void store_short_first(void* data, ShortVec a, Index n) {
#if FOVEA_LEVEL == 4
  const auto mask = static_cast<__mmask16>((1U << n) - 1U);
  _mm256_mask_storeu_epi16(data, mask, reinterpret_cast<__m256i>(a.raw));
#else
  alignas(kVecBytes / 2) std::uint16_t lanes[kLanes<float>];
  store_short(lanes, a);
  __builtin_memcpy(data, lanes, static_cast<std::size_t>(n) * sizeof(lanes[0]));
#endif
}

/// The lanes as integers of 32 bits, from 0 to 65535.
FOVEA_INLINE IntVec<float> widened(ShortVec a) {
#if FOVEA_LEVEL == 4
  const auto lanes = reinterpret_cast<__m256i>(a.raw);
  return {reinterpret_cast<IntVec<float>::Raw>(_mm512_maskz_cvtepu16_epi32(0xffff, lanes))};
#elif FOVEA_LEVEL == 3
  const auto lanes = reinterpret_cast<__m128i>(a.raw);
  return {reinterpret_cast<IntVec<float>::Raw>(_mm256_cvtepu16_epi32(lanes))};
#else
  return {__builtin_convertvector(a.raw, IntVec<float>::Raw)};
#endif
}

/// The lower 16 bits of each lane.
FOVEA_INLINE ShortVec narrowed(IntVec<float> a) {
#if FOVEA_LEVEL == 4
  const auto lanes = reinterpret_cast<__m512i>(a.raw);
  return {reinterpret_cast<ShortVec::Raw>(_mm512_maskz_cvtepi32_epi16(0xffff, lanes))};
#else
  return {__builtin_convertvector(a.raw, ShortVec::Raw)};
#endif
}

/// mask ? a : b per lane.
FOVEA_INLINE IntVec<float> select_int(IntVec<float> mask, IntVec<float> a, IntVec<float> b) {
  return {mask.raw ? a.raw : b.raw};
}

/// a + (half an ulp of what is left) - (one bit, if what is left is even), so that dropping the
/// lower \p bits of \p a rounds it to nearest even.
FOVEA_INLINE IntVec<float> rounded_to_even(IntVec<float> a, int bits) {
  const IntVec<float> odd = (a >> bits) & set1_int<float>(1);
  return a + odd + set1_int<float>((1 << (bits - 1)) - 1);
}

FOVEA_INLINE Vec<float> from_bfloat16(ShortVec a) { return from_bits<float>(widened(a) << 16); }

FOVEA_INLINE ShortVec to_bfloat16(Vec<float> a) {
  const IntVec<float> quiet = bits(a) | set1_int<float>(0x00400000);
  const IntVec<float> rounded = select_int(a == a, rounded_to_even(bits(a), 16), quiet);
  return narrowed(rounded >> 16);
}

/// The named numbers of binary16, as the bits of a float: exponents of 8 bits, 10 bits of fraction
/// followed by 13 that it lacks.
struct Float16Constants {
  static constexpr int kLackedBits = 13;
  static constexpr std::int32_t kSign = 0x8000;                // of binary16 itself
  static constexpr std::int32_t kInfinity = 0x7c00;            // the same
  static constexpr std::int32_t kQuiet = 0x0200;               // the same
  static constexpr std::int32_t kBias = (127 - 15) << 23;      // between the two exponents
  static constexpr std::int32_t kSmallest = (127 - 14) << 23;  // 2^-14: the smallest normal number
  static constexpr std::int32_t kBeyond = (127 + 16) << 23;    // 2^16: rounds to infinity
  static constexpr std::int32_t kHalf = 126 << 23;             // 2^-1: its ulp is binary16's least
};

/// By integers, as hardware does it: float is exact for every binary16.
FOVEA_INLINE Vec<float> float16_to_float(IntVec<float> a) {
  using C = Float16Constants;
  const IntVec<float> sign = a & set1_int<float>(C::kSign);
  const IntVec<float> magnitude = a - sign;
  const IntVec<float> shifted = magnitude << C::kLackedBits;
  const IntVec<float> normal = shifted + set1_int<float>(C::kBias);
  // With the exponent of the smallest normal number, a subnormal one is that number too large.
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

/// The same the other way. \returns binary16 in the lower 16 bits
FOVEA_INLINE IntVec<float> float_to_float16(Vec<float> a) {
  using C = Float16Constants;
  const IntVec<float> magnitude = bits(a) & set1_int<float>(0x7fffffff);
  const IntVec<float> sign = (bits(a) >> 16) & set1_int<float>(C::kSign);
  // Carries run into the exponent, and from the largest number on into infinity.
  const IntVec<float> normal =
      rounded_to_even(magnitude - set1_int<float>(C::kBias), C::kLackedBits) >> C::kLackedBits;
  // The sum with 1/2 rounds to multiples of 2^-24, which then stand in the low bits.
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

FOVEA_INLINE Vec<float> from_float16(ShortVec a) {
#if FOVEA_LEVEL == 4
  return {_mm512_maskz_cvtph_ps(0xffff, reinterpret_cast<__m256i>(a.raw))};
#elif FOVEA_LEVEL_HAS_F16C
  return {_mm256_cvtph_ps(reinterpret_cast<__m128i>(a.raw))};
#elif defined(__aarch64__)
  return {vcvt_f32_f16(reinterpret_cast<float16x4_t>(a.raw))};
#else
  return float16_to_float(widened(a));
#endif
}

FOVEA_INLINE ShortVec to_float16(Vec<float> a) {
#if FOVEA_LEVEL == 4
  constexpr int nearest_even = 0;
  return {reinterpret_cast<ShortVec::Raw>(_mm512_maskz_cvtps_ph(0xffff, a.raw, nearest_even))};
#elif FOVEA_LEVEL_HAS_F16C
  constexpr int nearest_even = 0;
  return {reinterpret_cast<ShortVec::Raw>(_mm256_cvtps_ph(a.raw, nearest_even))};
#elif defined(__aarch64__)
  return {reinterpret_cast<ShortVec::Raw>(vcvt_f16_f32(a.raw))};
#else
  return narrowed(float_to_float16(a));
#endif
}

template <Storage S>
FOVEA_INLINE Vec<float> from_short(ShortVec a) {
  if constexpr (S == Storage::bfloat16) return from_bfloat16(a);
  if constexpr (S == Storage::float16) return from_float16(a);
}

template <Storage S>
FOVEA_INLINE ShortVec to_short(Vec<float> a) {
  if constexpr (S == Storage::bfloat16) return to_bfloat16(a);
  if constexpr (S == Storage::float16) return to_float16(a);
}

/// Whether tensors that are computed in T can be stored in S.
template <Storage S, class T>
inline constexpr bool kIsStorable = S == Storage::native || sizeof(T) == sizeof(float);

/// Bytes of an element that is computed in T.
template <Storage S, class T>
inline constexpr Index kStoredBytes = S == Storage::native ? Index{sizeof(T)} : 2;

/// The same of a matrix.
template <class T, Storage S>
FOVEA_INLINE Index element_bytes(const StoredMatrix<S>& /*m*/) {
  return kStoredBytes<S, T>;
}
template <class T, Storage S>
FOVEA_INLINE Index element_bytes(const OutputMatrix<S>& m) {
  return m.is_wide ? kStoredBytes<Storage::native, T> : kStoredBytes<S, T>;
}

/// Calls `functor.template run<X>()` for the storage X that a matrix is written in.
template <Storage S, class Functor>
FOVEA_INLINE void with_storage(const OutputMatrix<S>& m, const Functor& functor) {
  if constexpr (S != Storage::native) {
    if (!m.is_wide) return functor.template run<S>();
  }
  functor.template run<Storage::native>();
}

/// The address of an element of 16 bits.
FOVEA_INLINE const void* short_element(const void* data, Index offset) {
  return static_cast<const char*>(data) + offset * 2;
}
FOVEA_INLINE void* short_element(void* data, Index offset) {
  return static_cast<char*>(data) + offset * 2;
}

/// Lanes from the elements of \p data from \p offset on; of any alignment that elements have.
template <Storage S, class T>
FOVEA_INLINE Vec<T> load_stored(const void* data, Index offset) {
  static_assert(kIsStorable<S, T>);
  if constexpr (S == Storage::native) {
    return load(static_cast<const T*>(data) + offset);
  } else {
    return from_short<S>(load_short(short_element(data, offset)));
  }
}

/// The first \p n lanes, n < lanes, the others 0; reads nothing beyond them.
template <Storage S, class T>
FOVEA_INLINE Vec<T> load_stored_first(const void* data, Index offset, Index n) {
  static_assert(kIsStorable<S, T>);
  if constexpr (S == Storage::native) {
    return load_first(static_cast<const T*>(data) + offset, n);
  } else {
    return from_short<S>(load_short_first(short_element(data, offset), n));
  }
}

/// Rounds lanes to the elements of \p data from \p offset on.
template <Storage S, class T>
FOVEA_INLINE void store_stored(void* data, Index offset, Vec<T> a) {
  static_assert(kIsStorable<S, T>);
  if constexpr (S == Storage::native) {
    store(static_cast<T*>(data) + offset, a);
  } else {
    store_short(short_element(data, offset), to_short<S>(a));
  }
}

/// Writes the first \p n lanes.
template <Storage S, class T>
FOVEA_INLINE void store_stored_first(void* data, Index offset, Vec<T> a, Index n) {
  static_assert(kIsStorable<S, T>);
  if constexpr (S == Storage::native) {
    store_first(static_cast<T*>(data) + offset, a, n);
  } else {
    store_short_first(short_element(data, offset), to_short<S>(a), n);
  }
}

#undef FOVEA_LEVEL_HAS_F16C
