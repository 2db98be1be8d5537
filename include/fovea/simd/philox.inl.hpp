// SPDX-License-Identifier: MIT
/// \file
/// Philox4x32-10 of core/philox.hpp, one counter per lane; the same bits at every level. Cost: 20
/// multiplications per vector of double, 40 per vector of float.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/vec_operations.inl.hpp"
#endif

/// The upper halves, moved down; not by an arithmetic shift, which AVX2 lacks.
FOVEA_INLINE LowHalves high_halves(LowHalves a) {
  return {reinterpret_cast<LowHalves::Raw>(reinterpret_cast<LowHalves::Wrapping>(a.raw) >> 32)};
}

FOVEA_INLINE LowHalves low_halves(std::uint32_t x) { return set1_int<double>(x); }

/// The four words of a counter, or of random bits.
struct PhiloxWords {
  LowHalves at[4];
};

/// One round with the key of that round.
FOVEA_INLINE PhiloxWords philox_round(const PhiloxWords& c, std::uint32_t key0,
                                      std::uint32_t key1) {
  const LowHalves multiplier0 = low_halves(detail::low_half(detail::kPhiloxMultiplier0));
  const LowHalves multiplier1 = low_halves(detail::low_half(detail::kPhiloxMultiplier1));
  const LowHalves product0 = multiply_low(multiplier0, c.at[0]);
  const LowHalves product1 = multiply_low(multiplier1, c.at[2]);
  return {{{high_halves(product1).raw ^ c.at[1].raw ^ low_halves(key0).raw},
           product1,
           {high_halves(product0).raw ^ c.at[3].raw ^ low_halves(key1).raw},
           product0}};
}

/// Four words of random bits per lane of N vectors of counters, as `philox4x32_10` of
/// core/philox.hpp with a seed as key. The vectors are interleaved to hide the latency of a round.
/// \param round the first round, whose key is the advanced halves of the seed
template <int N>
FOVEA_INLINE void philox_rounds(PhiloxWords (&c)[N], int round, std::uint32_t key0,
                                std::uint32_t key1) {
  FOVEA_UNROLL
  for (; round < detail::kPhiloxRounds; ++round) {
    FOVEA_UNROLL
    for (int n = 0; n < N; ++n) c[n] = philox_round(c[n], key0, key1);
    key0 += detail::kPhiloxWeyl0;
    key1 += detail::kPhiloxWeyl1;
  }
}
FOVEA_INLINE PhiloxWords philox_lanes(const PhiloxWords& counter, std::uint64_t seed) {
  PhiloxWords c[1] = {counter};
  philox_rounds(c, 0, detail::low_half(seed), detail::high_half(seed));
  return c[0];
}

/// The source of draws: the seed and a head's common coordinates.
struct DrawSource {
  std::uint64_t seed;
  std::uint32_t batch;
  std::uint32_t head;

  /// The words at (i, j); only the lower halves are used.
  FOVEA_INLINE PhiloxWords words(LowHalves i, LowHalves j) const {
    return philox_lanes({{low_halves(batch), low_halves(head), i, j}}, seed);
  }
  /// The same for N vectors.
  template <int N>
  FOVEA_INLINE void words(const LowHalves (&i)[N], const LowHalves (&j)[N],
                          PhiloxWords (&c)[N]) const {
    FOVEA_UNROLL
    for (int n = 0; n < N; ++n) c[n] = {{low_halves(batch), low_halves(head), i[n], j[n]}};
    philox_rounds(c, 0, detail::low_half(seed), detail::high_half(seed));
  }
};

/// Bits of a fraction in `uniform_draw<T>`.
template <class T>
inline constexpr int kDrawBits = sizeof(T) == 4 ? 24 : 53;

/// The numerator of the draw from random bits: the upper bits, with the last one set.
template <class T>
FOVEA_INLINE IntVec<T> draw_of_bits(typename IntVec<T>::Raw word) {
  using Wrapping = typename IntVec<T>::Wrapping;
  constexpr int unused = 8 * static_cast<int>(sizeof(T)) - kDrawBits<T>;
  return IntVec<T>{reinterpret_cast<typename IntVec<T>::Raw>(reinterpret_cast<Wrapping>(word) >>
                                                             unused)} |
         set1_int<T>(1);
}

/// The numerator of the double from the first two words.
FOVEA_INLINE IntVec<double> wide_draw(const PhiloxWords& words) {
  const LowHalves low = words.at[1] & set1_int<double>(0xffffffff);
  return draw_of_bits<double>(((words.at[0] << 32) | low).raw);
}

/// 2^kDrawBits times `uniform_draw<T>(seed, batch, head, i, j)` of core/philox.hpp, per lane: odd
/// integers. Only the lower 32 bits of i and j are used.
template <class T>
FOVEA_INLINE IntVec<T> draw_numerator(const DrawSource& source, IntVec<T> i, IntVec<T> j) {
  if constexpr (sizeof(T) == 8) {
    return wide_draw(source.words(i, j));
  } else {
    // Even and odd lanes alternate in the lower halves.
    const LowHalves even_i{reinterpret_cast<LowHalves::Raw>(i.raw)};
    const LowHalves even_j{reinterpret_cast<LowHalves::Raw>(j.raw)};
    PhiloxWords words[2];
    source.words({even_i, high_halves(even_i)}, {even_j, high_halves(even_j)}, words);
    const LowHalves even = words[0].at[0] & set1_int<double>(0xffffffff);
    const LowHalves odd = words[1].at[0] << 32;
    return draw_of_bits<T>(reinterpret_cast<typename IntVec<T>::Raw>((even | odd).raw));
  }
}

/// The draws of one row: as `draw_numerator`, for many j. The parts of the first rounds that depend
/// only on seed, batch, head and i are computed once. Cost: three quarters of the multiplications.
class RowDraws {
 public:
  FOVEA_INLINE RowDraws(const DrawSource& source, std::uint32_t i)
      : key0_(detail::low_half(source.seed)), key1_(detail::high_half(source.seed)) {
    // Round 0 multiplies batch and i.
    const std::uint64_t product0 = detail::kPhiloxMultiplier0 * source.batch;
    const std::uint64_t product1 = detail::kPhiloxMultiplier1 * i;
    const std::uint32_t word0 = detail::high_half(product1) ^ source.head ^ key0_;
    before_j_ = detail::high_half(product0) ^ key1_;
    word1_ = detail::low_half(product1);
    next_key();
    // Round 1 multiplies word 0, and the word that depends on j.
    const std::uint64_t product = detail::kPhiloxMultiplier0 * word0;
    const std::uint32_t word2 = detail::high_half(product) ^ detail::low_half(product0) ^ key1_;
    word3_ = detail::low_half(product);
    key0_of_round1_ = key0_;
    next_key();
    // Round 2 multiplies word 2, and the word that depends on j.
    product1_ = detail::kPhiloxMultiplier1 * word2;
  }

  /// 2^kDrawBits times the draws at V vectors of j, per lane: odd integers.
  template <int V, class T>
  FOVEA_INLINE void numerators(const IntVec<T> (&j)[V], IntVec<T> (&draws)[V]) const {
    if constexpr (sizeof(T) == 8) {
      PhiloxWords words[V];
      at(j, words);
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) draws[v] = wide_draw(words[v]);
    } else {
      LowHalves halves[2 * V];  // the even lanes, and the odd ones moved down
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) {
        halves[2 * v] = {reinterpret_cast<LowHalves::Raw>(j[v].raw)};
        halves[2 * v + 1] = high_halves(halves[2 * v]);
      }
      PhiloxWords words[2 * V];
      at(halves, words);
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) {
        const LowHalves low = words[2 * v].at[0] & set1_int<double>(0xffffffff);
        const LowHalves high = words[2 * v + 1].at[0] << 32;
        draws[v] = draw_of_bits<T>(reinterpret_cast<typename IntVec<T>::Raw>((low | high).raw));
      }
    }
  }

 private:
  /// The words at N vectors of j.
  template <int N>
  FOVEA_INLINE void at(const LowHalves (&j)[N], PhiloxWords (&c)[N]) const {
    const LowHalves multiplier0 = low_halves(detail::low_half(detail::kPhiloxMultiplier0));
    const LowHalves multiplier1 = low_halves(detail::low_half(detail::kPhiloxMultiplier1));
    const std::uint32_t high1 = detail::high_half(product1_);
    FOVEA_UNROLL
    for (int n = 0; n < N; ++n) {
      const LowHalves round1 = multiply_low(multiplier1, {j[n].raw ^ low_halves(before_j_).raw});
      const LowHalves word0{high_halves(round1).raw ^ low_halves(word1_ ^ key0_of_round1_).raw};
      const LowHalves round2 = multiply_low(multiplier0, word0);
      c[n] = {{{round1.raw ^ low_halves(high1 ^ key0_).raw},
               low_halves(detail::low_half(product1_)),
               {high_halves(round2).raw ^ low_halves(word3_ ^ key1_).raw},
               round2}};
    }
    philox_rounds(c, 3, key0_ + detail::kPhiloxWeyl0, key1_ + detail::kPhiloxWeyl1);
  }

  FOVEA_INLINE void next_key() {
    key0_ += detail::kPhiloxWeyl0;
    key1_ += detail::kPhiloxWeyl1;
  }

  std::uint32_t key0_, key1_;  // of round 2
  std::uint32_t key0_of_round1_;
  std::uint32_t before_j_, word1_, word3_;
  std::uint64_t product1_;
};
