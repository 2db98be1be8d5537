// SPDX-License-Identifier: MIT
/// \file
/// Random numbers as a function of their coordinates: Philox4x32-10 (Salmon, Moraes, Dror and Shaw,
/// "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3). The generator has no
/// state, so every schedule gives the same bits.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

inline constexpr std::uint64_t kPhiloxMultiplier0 = 0xD2511F53;
inline constexpr std::uint64_t kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9;  // from the golden ratio
inline constexpr std::uint32_t kPhiloxWeyl1 = 0xBB67AE85;  // from sqrt(3) - 1
inline constexpr int kPhiloxRounds = 10;

constexpr std::uint32_t high_half(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }
constexpr std::uint32_t low_half(std::uint64_t x) { return static_cast<std::uint32_t>(x); }

}  // namespace detail

/// Four 32-bit random words for a counter and a key. For each key it is a bijection of the
/// counters. Cost: 20 multiplications of 32 x 32 bits. (The name philox4x32 is taken by a macro of
/// Random123.)
constexpr std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                                     std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < detail::kPhiloxRounds; ++round) {
    const std::uint64_t product0 = detail::kPhiloxMultiplier0 * counter[0];
    const std::uint64_t product1 = detail::kPhiloxMultiplier1 * counter[2];
    counter = {detail::high_half(product1) ^ counter[1] ^ key[0], detail::low_half(product1),
               detail::high_half(product0) ^ counter[3] ^ key[1], detail::low_half(product0)};
    key[0] += detail::kPhiloxWeyl0;
    key[1] += detail::kPhiloxWeyl1;
  }
  return counter;
}

/// Converts 32 random bits to a float in the open interval (0, 1): the upper 24 bits, with the last
/// of them set, times 2^-24. The results are the odd multiples of 2^-24 from 2^-24 to 1 - 2^-24.
/// They are exact in float and equally likely, and their mean is 1/2.
constexpr float open_unit_float(std::uint32_t bits) {
  return static_cast<float>((bits >> 8) | 1u) * 0x1p-24f;
}

/// Converts 64 random bits to a double in the open interval (0, 1), like `open_unit_float`: the
/// upper 53 bits, with the last of them set, times 2^-53. The results go from 2^-53 to 1 - 2^-53.
constexpr double open_unit_double(std::uint64_t bits) {
  return static_cast<double>((bits >> 11) | 1u) * 0x1p-53;
}

/// The uniform draw in (0, 1) for a seed and the coordinates batch, head, query i and key j. The
/// seed is the key of Philox, low half first; the coordinates are its counter, in this order. A
/// float uses word 0; a double uses word 0 as the high half and word 1 as the low half, so that the
/// two differ by at most 2^-24.
/// \pre each coordinate is in [0, 2^32)
template <std::floating_point T>
requires std::same_as<T, float> || std::same_as<T, double>
[[nodiscard]] constexpr T uniform_draw(std::uint64_t seed, Index batch, Index head, Index i,
                                       Index j) {
  const std::array<std::uint32_t, 4> words =
      philox4x32_10({static_cast<std::uint32_t>(batch), static_cast<std::uint32_t>(head),
                     static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(j)},
                    {detail::low_half(seed), detail::high_half(seed)});
  if constexpr (std::same_as<T, float>) {
    return open_unit_float(words[0]);
  } else {
    return open_unit_double(std::uint64_t{words[0]} << 32 | words[1]);
  }
}

FOVEA_NAMESPACE_END
