// SPDX-License-Identifier: MIT
/// \file
/// Machine-dependent operations, implemented with the compiler's plain vectors, and sizes measured
/// per machine. Each is called by the function of its name in simd/vec_operations.inl.hpp, which
/// documents it. A machine's struct derives from this one and overrides what its instructions do
/// better.

struct Portable {
  /// Vector registers.
  static constexpr int kRegisters = 16;
  /// Accumulators of a register block; see simd/register_block.inl.hpp.
  static constexpr int kAccumulators = 8;
  /// The steps of a register block that are unrolled, if it is more than half full, and if not.
  static constexpr int kFullBlockSteps = 1;
  static constexpr int kSmallBlockSteps = 1;
  /// Keys of a softmax tile whose weights are computed per loop step.
  static constexpr int kWeightSteps = 2;
  /// Vectors of a linear state that are processed together.
  static constexpr int kStateVectors = 2;
  /// Whether `fma` rounds once.
  static constexpr bool kHasFma = false;
  /// Whether `dot_pairs` is an instruction, faster than `fma`.
  static constexpr bool kHasFastPairs = false;

  template <class T>
  static FOVEA_INLINE Vec<T> load_first(const T* p, Index n) {
    alignas(kVecBytes) T lanes[kLanes<T>] = {};
    for (Index lane = 0; lane < n; ++lane) lanes[lane] = p[lane];
    return load(lanes);
  }

  static FOVEA_INLINE Vec<float> load_pieces(const char* first, Index step) {
    alignas(kVecBytes) float pieces[kLanes<float>];
    FOVEA_UNROLL
    for (int i = 0; i < kLanes<float>; i += 4, first += step) {
      __builtin_memcpy(pieces + i, first, 16);
    }
    return load(pieces);
  }
  static FOVEA_INLINE Vec<float> load_halves(const char* first, Index step) {
    alignas(kVecBytes) float halves[kLanes<float>];
    __builtin_memcpy(halves, first, kVecBytes / 2);
    __builtin_memcpy(halves + kLanes<float> / 2, first + step, kVecBytes / 2);
    return load(halves);
  }

  template <class T>
  static FOVEA_INLINE Vec<T> fma(Vec<T> a, Vec<T> b, Vec<T> c) {
    return {a.raw * b.raw + c.raw};
  }
  template <class T>
  static FOVEA_INLINE Vec<T> maximum(Vec<T> a, Vec<T> b) {
    return {a.raw > b.raw ? a.raw : b.raw};
  }
  template <class T>
  static FOVEA_INLINE Vec<T> minimum(Vec<T> a, Vec<T> b) {
    return {a.raw < b.raw ? a.raw : b.raw};
  }

  template <class T>
  static FOVEA_INLINE Vec<T> square_root(Vec<T> a) {
    FOVEA_UNROLL
    for (int lane = 0; lane < kLanes<T>; ++lane) {
      if constexpr (sizeof(T) == 4) a.raw[lane] = __builtin_sqrtf(a.raw[lane]);
      if constexpr (sizeof(T) == 8) a.raw[lane] = __builtin_sqrt(a.raw[lane]);
    }
    return a;
  }

  /// `scale_by_exp2` (simd/math.inl.hpp) is found when T is known.
  template <class T>
  static FOVEA_INLINE Vec<T> scale_by_shifted(Vec<T> p, Vec<T> /*n*/, Vec<T> shifted) {
    return scale_by_exp2(p, bits(shifted));
  }

  template <class T>
  static FOVEA_INLINE std::uint32_t mask_bits(IntVec<T> mask) {
    std::uint32_t bits = 0;
    FOVEA_UNROLL
    for (int lane = 0; lane < kLanes<T>; ++lane) {
      bits |= static_cast<std::uint32_t>(mask.raw[lane] & 1) << lane;
    }
    return bits;
  }
  template <class T>
  static FOVEA_INLINE void store_lanes(T* p, Vec<T> a, std::uint32_t bits) {
    alignas(kVecBytes) T lanes[kLanes<T>];
    store(lanes, a);
    for (; bits != 0; bits &= bits - 1) *p++ = lanes[__builtin_ctz(bits)];
  }
  template <class T>
  static FOVEA_INLINE void store_lanes_int(Int<T>* p, IntVec<T> a, std::uint32_t bits) {
    alignas(kVecBytes) Int<T> lanes[kLanes<T>];
    store_int<T>(lanes, a);
    for (; bits != 0; bits &= bits - 1) *p++ = lanes[__builtin_ctz(bits)];
  }

  static FOVEA_INLINE LowHalves multiply_low(LowHalves a, LowHalves b) {
    using Wrapping = LowHalves::Wrapping;
    const Wrapping low = reinterpret_cast<Wrapping>(set1_int<double>(0xffffffff).raw);
    return {reinterpret_cast<LowHalves::Raw>((reinterpret_cast<Wrapping>(a.raw) & low) *
                                             (reinterpret_cast<Wrapping>(b.raw) & low))};
  }

  static FOVEA_INLINE ShortVec load_short_first(const void* data, Index n) {
    alignas(kVecBytes / 2) std::uint16_t lanes[kLanes<float>] = {};
    __builtin_memcpy(lanes, data, static_cast<std::size_t>(n) * sizeof(lanes[0]));
    return load_short(lanes);
  }
  static FOVEA_INLINE void store_short_first(void* data, ShortVec a, Index n) {
    alignas(kVecBytes / 2) std::uint16_t lanes[kLanes<float>];
    store_short(lanes, a);
    __builtin_memcpy(data, lanes, static_cast<std::size_t>(n) * sizeof(lanes[0]));
  }
  static FOVEA_INLINE IntVec<float> widened(ShortVec a) {
    return {__builtin_convertvector(a.raw, IntVec<float>::Raw)};
  }
  static FOVEA_INLINE ShortVec narrowed(IntVec<float> a) {
    return {__builtin_convertvector(a.raw, ShortVec::Raw)};
  }
  static FOVEA_INLINE Vec<float> from_float16(ShortVec a) { return float16_to_float(widened(a)); }
  static FOVEA_INLINE ShortVec to_float16(Vec<float> a) { return narrowed(float_to_float16(a)); }
};
