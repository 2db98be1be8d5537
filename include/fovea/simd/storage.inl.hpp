// SPDX-License-Identifier: MIT
/// \file
/// Loads and stores of a `Vec<T>` in any `Storage`: converts 16-bit from and to float.
///
/// Loads are exact, stores round to nearest even, with overflow to infinity and gradual underflow.
/// NaN stays NaN, with the upper bits of its payload; all conversions except from bfloat16 quiet
/// it. All levels give the same bits.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/vec_operations.inl.hpp"
#endif

FOVEA_INLINE Vec<float> from_bfloat16(ShortVec a) { return from_bits<float>(widened(a) << 16); }

/// Pairs of 16-bit numbers, which need not be aligned like integers.
FOVEA_INLINE IntVec<float> load_short_pairs(const void* p) {
  IntVec<float> pairs;
  __builtin_memcpy(&pairs.raw, p, sizeof(pairs.raw));
  return pairs;
}

/// The first and the second of the two numbers in each lane.
FOVEA_INLINE void split_bfloat16(IntVec<float> pairs, Vec<float>& first, Vec<float>& second) {
  first = from_bits<float>(pairs << 16);
  second = from_bits<float>(pairs & set1_int<float>(~0xffff));
}

FOVEA_INLINE ShortVec to_bfloat16(Vec<float> a) {
  const IntVec<float> quiet = bits(a) | set1_int<float>(0x00400000);
  const IntVec<float> rounded = select_int(a == a, rounded_to_even(bits(a), 16), quiet);
  return narrowed(rounded >> 16);
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

/// Whether tensors computed in T can be stored in S.
template <Storage S, class T>
inline constexpr bool kIsStorable = S == Storage::native || sizeof(T) == sizeof(float);

/// Bytes of an element computed in T.
template <Storage S, class T>
inline constexpr Index kStoredBytes = S == Storage::native ? Index{sizeof(T)} : 2;

/// The same for a matrix.
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

/// The address of a 16-bit element.
FOVEA_INLINE const void* short_element(const void* data, Index offset) {
  return static_cast<const char*>(data) + offset * 2;
}
FOVEA_INLINE void* short_element(void* data, Index offset) {
  return static_cast<char*>(data) + offset * 2;
}

/// Lanes from the elements of \p data from \p offset on; with element alignment.
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
