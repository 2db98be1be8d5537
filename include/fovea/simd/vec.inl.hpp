// SPDX-License-Identifier: MIT
/// \file
/// The vector types of one level: `Vec<T>` (T float or double), `IntVec<T>`, integers of the same
/// width, and `ShortVec`, 16-bit elements; with the operations built into the compiler's vectors.
/// simd/vec_operations.inl.hpp has the others.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/levels/read_alone.inl.hpp"
#endif

/// Bytes of a register.
inline constexpr int kVecBytes = FOVEA_LEVEL_VEC_BYTES;

/// Whether this is the lowest of several levels of the unit, whose code is kept short: machines of
/// the last ten years use another one.
inline constexpr bool kIsCompact = FOVEA_LEVEL_IS_COMPACT;

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

/// x in all lanes. Not `Raw{} + x`: that addition is not optimised away, because of -0.
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
/// The product, never fused with a following addition (core/rounded.hpp).
template <class T>
FOVEA_INLINE Vec<T> operator*(Vec<T> a, Vec<T> b) {
  typename Vec<T>::Raw product = a.raw * b.raw;
  asm("" : FOVEA_CHANGES_NUMBER(product));
  return {product};
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

/// mask ? a : b per lane; the operand not selected is ignored.
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

/// Whether any lane of a mask is set.
template <class T>
FOVEA_INLINE bool any(IntVec<T> mask) {
  Int<T> set = 0;
  FOVEA_UNROLL
  for (int lane = 0; lane < kLanes<T>; ++lane) set |= mask.raw[lane];
  return set != 0;
}

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

/// 64-bit lanes of which only the lower halves are used.
using LowHalves = IntVec<double>;
