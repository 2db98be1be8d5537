// SPDX-License-Identifier: MIT
/// \file
/// The operations of AArch64.

#include "fovea/simd/arch/portable.inl.hpp"

struct Neon : Portable {
  static constexpr int kRegisters = 32;
  static constexpr int kAccumulators = 16;
  static constexpr bool kHasFma = true;

  template <class T>
  static FOVEA_INLINE Vec<T> fma(Vec<T> a, Vec<T> b, Vec<T> c) {
    if constexpr (sizeof(T) == 4) return {vfmaq_f32(c.raw, a.raw, b.raw)};
    if constexpr (sizeof(T) == 8) return {vfmaq_f64(c.raw, a.raw, b.raw)};
  }
  template <class T>
  static FOVEA_INLINE Vec<T> square_root(Vec<T> a) {
    if constexpr (sizeof(T) == 4) return {vsqrtq_f32(a.raw)};
    if constexpr (sizeof(T) == 8) return {vsqrtq_f64(a.raw)};
  }
  template <class T>
  static FOVEA_INLINE Vec<T> maximum(Vec<T> a, Vec<T> b) {
    if constexpr (sizeof(T) == 4) return {vmaxq_f32(a.raw, b.raw)};
    if constexpr (sizeof(T) == 8) return {vmaxq_f64(a.raw, b.raw)};
  }
  template <class T>
  static FOVEA_INLINE Vec<T> minimum(Vec<T> a, Vec<T> b) {
    if constexpr (sizeof(T) == 4) return {vminq_f32(a.raw, b.raw)};
    if constexpr (sizeof(T) == 8) return {vminq_f64(a.raw, b.raw)};
  }

  static FOVEA_INLINE LowHalves multiply_low(LowHalves a, LowHalves b) {
    return {reinterpret_cast<LowHalves::Raw>(
        vmull_u32(vmovn_u64(reinterpret_cast<uint64x2_t>(a.raw)),
                  vmovn_u64(reinterpret_cast<uint64x2_t>(b.raw))))};
  }

  static FOVEA_INLINE Vec<float> from_float16(ShortVec a) {
    return {vcvt_f32_f16(reinterpret_cast<float16x4_t>(a.raw))};
  }
  static FOVEA_INLINE ShortVec to_float16(Vec<float> a) {
    return {reinterpret_cast<ShortVec::Raw>(vcvt_f16_f32(a.raw))};
  }
};
