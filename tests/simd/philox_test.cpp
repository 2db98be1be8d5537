// SPDX-License-Identifier: MIT
/// \file
/// kernels/philox.inl.hpp against core/philox.hpp, by bits, at every level.
#include "fovea/core/philox.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "support/fill.hpp"
#include "support/levels.hpp"

namespace {

constexpr int kDrawLanes = 16;

/// The functions of philox_body.inl.hpp for one level.
struct PhiloxOperations {
  void (*words)(const std::int64_t* counters, std::uint64_t seed, std::uint32_t* out);
  template <class Integer>
  using Numerators = void (*)(std::uint64_t seed, std::uint32_t batch, std::uint32_t head,
                              const Integer* i, const Integer* j, Integer* out);
  Numerators<std::int32_t> float_numerators;
  Numerators<std::int64_t> double_numerators;
  Numerators<std::int32_t> float_row_numerators;
  Numerators<std::int64_t> double_row_numerators;
};

}  // namespace

#define FOVEA_LEVEL_BODY "simd/philox_body.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

namespace fovea_test {
namespace {

PhiloxOperations at_level() { return FOVEA_AT_LEVEL(fovea::isa_level(), operations()); }

/// Edges first, then anything.
std::uint64_t pick(std::uint64_t seed, Index n) {
  constexpr std::uint64_t edges[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0xffffffffffffffff};
  const std::uint64_t h = hash(seed, n, 0, 0, 0);
  return h % 3 == 0 ? edges[h / 3 % std::size(edges)] : hash(seed, n, 1, 0, 0);
}

TEST(PhiloxLanes, WordsEqualTheScalarCode) {
  at_each_level([] {
    const PhiloxOperations operations = at_level();
    for (std::uint64_t round = 0; round < 200; ++round) {
      std::array<std::int64_t, 4 * kDrawLanes> counters{};
      for (std::size_t n = 0; n < counters.size(); ++n) {
        counters[n] = static_cast<std::int64_t>(pick(round, static_cast<Index>(n)));
      }
      const std::uint64_t seed = pick(round, -1);
      std::array<std::uint32_t, 4 * kDrawLanes> words{};
      operations.words(counters.data(), seed, words.data());
      for (std::size_t lane = 0; lane < kDrawLanes; ++lane) {
        const auto word = [&](std::size_t w) {
          return static_cast<std::uint32_t>(counters[w * kDrawLanes + lane]);
        };
        const auto expected = fovea::philox4x32_10(
            {word(0), word(1), word(2), word(3)},
            {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
        for (std::size_t w = 0; w < 4; ++w) EXPECT_EQ(words[lane * 4 + w], expected[w]);
      }
    }
  });
}

/// Numerators over 2^bits are the draws, of one i or of many; positions wrap modulo 2^32, as in the
/// scalar code.
template <class T, class Integer, class Operation>
void expect_draws(int bits, Operation numerators, bool one_i) {
  for (std::uint64_t round = 0; round < 200; ++round) {
    std::array<Integer, kDrawLanes> i{};
    std::array<Integer, kDrawLanes> j{};
    for (std::size_t lane = 0; lane < kDrawLanes; ++lane) {
      i[lane] = static_cast<Integer>(pick(round, one_i ? 0 : static_cast<Index>(2 * lane)));
      j[lane] = static_cast<Integer>(pick(round, static_cast<Index>(2 * lane + 1)));
    }
    const std::uint64_t seed = pick(round, -1);
    const auto batch = static_cast<std::uint32_t>(pick(round, -2));
    const auto head = static_cast<std::uint32_t>(pick(round, -3));
    std::array<Integer, kDrawLanes> made{};
    numerators(seed, batch, head, i.data(), j.data(), made.data());
    for (std::size_t lane = 0; lane < kDrawLanes; ++lane) {
      const T expected = fovea::uniform_draw<T>(seed, batch, head, i[lane], j[lane]);
      EXPECT_EQ(std::ldexp(static_cast<T>(made[lane]), -bits), expected) << "lane " << lane;
    }
  }
}

TEST(PhiloxLanes, NumeratorsEqualTheDraws) {
  at_each_level([] {
    expect_draws<float, std::int32_t>(24, at_level().float_numerators, false);
    expect_draws<double, std::int64_t>(53, at_level().double_numerators, false);
  });
}

TEST(PhiloxLanes, NumeratorsOfARowEqualTheDraws) {
  at_each_level([] {
    expect_draws<float, std::int32_t>(24, at_level().float_row_numerators, true);
    expect_draws<double, std::int64_t>(53, at_level().double_row_numerators, true);
  });
}

}  // namespace
}  // namespace fovea_test
