// SPDX-License-Identifier: MIT
/// \file
/// Machine-dependent vector operations, implemented by the level's struct of simd/arch.
///
/// Every operation is one IEEE operation per lane (or a select or a permutation), so a sequence of
/// them gives the same bits at every width with a fused multiply-add.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/float16.inl.hpp"
#endif

#include FOVEA_LEVEL_ARCH

/// This level's implementation.
using Arch = FOVEA_LEVEL_OPERATIONS;

/// Registers of the level.
inline constexpr int kVecRegisters = Arch::kRegisters;

/// The first \p n lanes from p, n < lanes, the others 0; reads nothing beyond p + n.
template <class T>
FOVEA_INLINE Vec<T> load_first(const T* p, Index n) {
  return Arch::load_first(p, n);
}

/// A register of 16-byte pieces that are \p step bytes apart, with any alignment.
FOVEA_INLINE Vec<float> load_pieces(const char* first, Index step) {
  return Arch::load_pieces(first, step);
}

/// A register of two halves that are \p step bytes apart, with any alignment.
FOVEA_INLINE Vec<float> load_halves(const char* first, Index step) {
  return Arch::load_halves(first, step);
}

/// a * b + c, rounded once wherever the level has a fused multiply-add (v3, v4, AArch64,
/// and a baseline that was compiled with -mfma).
template <class T>
FOVEA_INLINE Vec<T> fma(Vec<T> a, Vec<T> b, Vec<T> c) {
  return Arch::fma(a, b, c);
}

/// The larger lane. Where either is NaN: \p b (the rule of x86), on AArch64 NaN.
template <class T>
FOVEA_INLINE Vec<T> maximum(Vec<T> a, Vec<T> b) {
  return Arch::maximum(a, b);
}

/// The smaller lane. Where either is NaN: \p b (the rule of x86), on AArch64 NaN.
template <class T>
FOVEA_INLINE Vec<T> minimum(Vec<T> a, Vec<T> b) {
  return Arch::minimum(a, b);
}

/// The square root of each lane.
template <class T>
FOVEA_INLINE Vec<T> square_root(Vec<T> a) {
  return Arch::square_root(a);
}

/// p * 2^n with one rounding. \param shifted n + kMagic
template <class T>
FOVEA_INLINE Vec<T> scale_by_shifted(Vec<T> p, Vec<T> n, Vec<T> shifted) {
  return Arch::scale_by_shifted(p, n, shifted);
}

/// One bit per lane of a mask, lane 0 the lowest.
template <class T>
FOVEA_INLINE std::uint32_t mask_bits(IntVec<T> mask) {
  return Arch::template mask_bits<T>(mask);
}

/// The number of bits set.
FOVEA_INLINE Index bit_count(std::uint32_t bits) { return __builtin_popcount(bits); }

/// Writes the lanes whose bits are set contiguously to p. May write a whole vector.
template <class T>
FOVEA_INLINE void store_lanes(T* p, Vec<T> a, std::uint32_t bits) {
  Arch::store_lanes(p, a, bits);
}
template <class T>
FOVEA_INLINE void store_lanes_int(Int<T>* p, IntVec<T> a, std::uint32_t bits) {
  Arch::template store_lanes_int<T>(p, a, bits);
}

/// The 64-bit products of the lower halves.
FOVEA_INLINE LowHalves multiply_low(LowHalves a, LowHalves b) { return Arch::multiply_low(a, b); }

/// The first \p n lanes from data, the others 0; reads nothing beyond them.
FOVEA_INLINE ShortVec load_short_first(const void* data, Index n) {
  return Arch::load_short_first(data, n);
}

/// Writes the first \p n lanes to data.
FOVEA_INLINE void store_short_first(void* data, ShortVec a, Index n) {
  Arch::store_short_first(data, a, n);
}

/// The lanes as integers of 32 bits, from 0 to 65535.
FOVEA_INLINE IntVec<float> widened(ShortVec a) { return Arch::widened(a); }

/// The lower 16 bits of each lane.
FOVEA_INLINE ShortVec narrowed(IntVec<float> a) { return Arch::narrowed(a); }

/// sum + the products of the two bfloat16 numbers in each lane; numbers, products and sums below
/// 2^-126 are 0. Only where Arch::kHasFastPairs.
template <class T, class A = Arch>
FOVEA_INLINE Vec<T> dot_pairs(IntVec<T> a, IntVec<T> b, Vec<T> sum) {
  return A::dot_pairs(a, b, sum);
}

/// Pairs of bfloat16 numbers, rounded to nearest even: lane i of both vectors, or lanes 2 i and
/// 2 i + 1 of their concatenation. Numbers below 2^-126 become 0. Only where Arch::kHasFastPairs.
template <class T, class A = Arch>
FOVEA_INLINE IntVec<T> rounded_pairs(Vec<T> first, Vec<T> second) {
  return A::rounded_pairs(first, second);
}
template <class T, class A = Arch>
FOVEA_INLINE IntVec<T> rounded_neighbours(Vec<T> a, Vec<T> b) {
  return A::rounded_neighbours(a, b);
}

/// Between binary16 and float.
FOVEA_INLINE Vec<float> from_float16(ShortVec a) { return Arch::from_float16(a); }
FOVEA_INLINE ShortVec to_float16(Vec<float> a) { return Arch::to_float16(a); }
