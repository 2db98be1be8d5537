// SPDX-License-Identifier: MIT
/// \file
/// Philox4x32-10 of core/philox.hpp, one counter per lane; the same bits at every level. Cost: 20
/// multiplications per vector of double, 40 per vector of float. Test
/// tests/kernels/philox_test.cpp.

/// 64-bit lanes of which the lower halves count; what the upper ones hold does not matter.
using LowHalves = IntVec<double>;

/// The 64-bit products of the lower halves.
FOVEA_INLINE LowHalves multiply_low(LowHalves a, LowHalves b) {
  using Raw = LowHalves::Raw;
#if FOVEA_LEVEL == 4
  return {reinterpret_cast<Raw>(_mm512_maskz_mul_epu32(static_cast<__mmask8>(-1),
                                                       reinterpret_cast<__m512i>(a.raw),
                                                       reinterpret_cast<__m512i>(b.raw)))};
#elif FOVEA_LEVEL == 3
  return {reinterpret_cast<Raw>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a.raw), reinterpret_cast<__m256i>(b.raw)))};
#elif defined(__SSE2__)
  return {reinterpret_cast<Raw>(
      _mm_mul_epu32(reinterpret_cast<__m128i>(a.raw), reinterpret_cast<__m128i>(b.raw)))};
#elif defined(__aarch64__)
  return {reinterpret_cast<Raw>(vmull_u32(vmovn_u64(reinterpret_cast<uint64x2_t>(a.raw)),
                                          vmovn_u64(reinterpret_cast<uint64x2_t>(b.raw))))};
#else
  using Wrapping = LowHalves::Wrapping;
  const Wrapping low = reinterpret_cast<Wrapping>(set1_int<double>(0xffffffff).raw);
  return {reinterpret_cast<Raw>((reinterpret_cast<Wrapping>(a.raw) & low) *
                                (reinterpret_cast<Wrapping>(b.raw) & low))};
#endif
}

/// The upper halves, brought down. Not the arithmetic shift, which AVX2 lacks.
FOVEA_INLINE LowHalves high_halves(LowHalves a) {
  return {reinterpret_cast<LowHalves::Raw>(reinterpret_cast<LowHalves::Wrapping>(a.raw) >> 32)};
}

FOVEA_INLINE LowHalves low_halves(std::uint32_t x) { return set1_int<double>(x); }

/// The four words of a counter, or of random bits.
struct PhiloxWords {
  LowHalves at[4];
};

/// Four words of random bits per lane; `philox4x32_10` of core/philox.hpp, the key a seed.
FOVEA_INLINE PhiloxWords philox_lanes(PhiloxWords c, std::uint64_t seed) {
  const LowHalves multiplier0 = low_halves(detail::low_half(detail::kPhiloxMultiplier0));
  const LowHalves multiplier1 = low_halves(detail::low_half(detail::kPhiloxMultiplier1));
  std::uint32_t key0 = detail::low_half(seed);
  std::uint32_t key1 = detail::high_half(seed);
  FOVEA_UNROLL
  for (int round = 0; round < detail::kPhiloxRounds; ++round) {
    const LowHalves product0 = multiply_low(multiplier0, c.at[0]);
    const LowHalves product1 = multiply_low(multiplier1, c.at[2]);
    c = {{{high_halves(product1).raw ^ c.at[1].raw ^ low_halves(key0).raw},
          product1,
          {high_halves(product0).raw ^ c.at[3].raw ^ low_halves(key1).raw},
          product0}};
    key0 += detail::kPhiloxWeyl0;
    key1 += detail::kPhiloxWeyl1;
  }
  return c;
}

/// Whose draws: the seed and the coordinates that a head has in common.
struct DrawSource {
  std::uint64_t seed;
  std::uint32_t batch;
  std::uint32_t head;

  /// The words at (i, j), whose lower halves count.
  FOVEA_INLINE PhiloxWords words(LowHalves i, LowHalves j) const {
    return philox_lanes({{low_halves(batch), low_halves(head), i, j}}, seed);
  }
};

/// Bits of a fraction in `uniform_draw<T>`.
template <class T>
inline constexpr int kDrawBits = sizeof(T) == 4 ? 24 : 53;

/// 2^kDrawBits times `uniform_draw<T>(seed, batch, head, i, j)` of core/philox.hpp, per lane: odd
/// integers. Of i and j the lower 32 bits count.
template <class T>
FOVEA_INLINE IntVec<T> draw_numerator(const DrawSource& source, IntVec<T> i, IntVec<T> j) {
  using Wrapping = typename IntVec<T>::Wrapping;
  typename IntVec<T>::Raw word;
  if constexpr (sizeof(T) == 8) {
    const PhiloxWords words = source.words(i, j);
    const LowHalves low = words.at[1] & set1_int<T>(0xffffffff);
    word = ((words.at[0] << 32) | low).raw;
  } else {
    // Even and odd lanes take turns in the lower halves.
    const LowHalves even_i{reinterpret_cast<LowHalves::Raw>(i.raw)};
    const LowHalves even_j{reinterpret_cast<LowHalves::Raw>(j.raw)};
    const LowHalves even = source.words(even_i, even_j).at[0] & set1_int<double>(0xffffffff);
    const LowHalves odd = source.words(high_halves(even_i), high_halves(even_j)).at[0] << 32;
    word = reinterpret_cast<typename IntVec<T>::Raw>((even | odd).raw);
  }
  constexpr int unused = 8 * static_cast<int>(sizeof(T)) - kDrawBits<T>;
  return IntVec<T>{reinterpret_cast<typename IntVec<T>::Raw>(reinterpret_cast<Wrapping>(word) >>
                                                             unused)} |
         set1_int<T>(1);
}
