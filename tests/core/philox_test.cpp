// SPDX-License-Identifier: MIT
/// \file
/// Tests of core/philox.hpp. Known answers: Random123 (Salmon et al.), file kat_vectors.
#include "fovea/core/philox.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace fovea_test::core_philox {

using fovea::Index;
using fovea::open_unit_double;
using fovea::open_unit_float;
using fovea::philox4x32_10;
using fovea::uniform_draw;

using Words = std::array<std::uint32_t, 4>;

constexpr std::uint32_t kAllBits32 = 0xffffffff;
constexpr std::uint64_t kAllBits64 = 0xffffffffffffffff;

// At compile time, so that constexpr is held as well.
static_assert(philox4x32_10({0, 0, 0, 0}, {0, 0}) ==
              Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox4x32_10({kAllBits32, kAllBits32, kAllBits32, kAllBits32},
                            {kAllBits32, kAllBits32}) ==
              Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                            {0xa4093822, 0x299f31d0}) ==
              Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

TEST(Philox, KnownAnswersAtRunTime) {
  volatile std::uint32_t word = kAllBits32;
  const std::uint32_t x = word;
  EXPECT_EQ(philox4x32_10({x, x, x, x}, {x, x}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(OpenUnit, FloatMapMatchesItsDefinition) {
  EXPECT_EQ(open_unit_float(0), 0x1p-24f);
  EXPECT_EQ(open_unit_float(kAllBits32), 1.0f - 0x1p-24f);
  EXPECT_LT(open_unit_float(kAllBits32), 1.0f);
  EXPECT_EQ(open_unit_float(0x80000000), 0.5f + 0x1p-24f);
  EXPECT_EQ(open_unit_float(0x7fffffff), 0.5f - 0x1p-24f);
  // Every value it can take: an odd multiple of 2^-24 inside (0, 1), in order.
  float before = 0.0f;
  std::uint32_t wrong = 0;
  for (std::uint32_t k = 0; k < (1u << 23); ++k) {
    const float u = open_unit_float(k << 9);
    const bool right = u > before && u < 1.0f && u * 0x1p24f == static_cast<float>(2 * k + 1) &&
                       u == open_unit_float((k << 9) | 0x1ff);
    wrong += right ? 0 : 1;
    before = u;
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(OpenUnit, DoubleMapMatchesItsDefinition) {
  EXPECT_EQ(open_unit_double(0), 0x1p-53);
  EXPECT_EQ(open_unit_double(kAllBits64), 1.0 - 0x1p-53);
  EXPECT_LT(open_unit_double(kAllBits64), 1.0);
  EXPECT_EQ(open_unit_double(std::uint64_t{1} << 63), 0.5 + 0x1p-53);
  EXPECT_EQ(open_unit_double((std::uint64_t{1} << 63) - 1), 0.5 - 0x1p-53);
  EXPECT_EQ(open_unit_double(std::uint64_t{1} << 12), 0x3p-53);
}

TEST(UniformDraw, IsPhiloxOfSeedAndCoordinates) {
  constexpr std::uint64_t seed = 0x299f31d0a4093822;
  constexpr std::uint32_t word0 = 0xd16cfe09;
  constexpr std::uint32_t word1 = 0x94fdcceb;
  constexpr float u = uniform_draw<float>(seed, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344);
  constexpr double v = uniform_draw<double>(seed, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344);
  EXPECT_EQ(u, open_unit_float(word0));
  EXPECT_EQ(v, open_unit_double(std::uint64_t{word0} << 32 | word1));
}

TEST(UniformDraw, EachCoordinateMatters) {
  const float u = uniform_draw<float>(1, 2, 3, 4, 5);
  EXPECT_EQ(u, uniform_draw<float>(1, 2, 3, 4, 5));
  EXPECT_NE(u, uniform_draw<float>(0, 2, 3, 4, 5));
  EXPECT_NE(u, uniform_draw<float>(1 + (std::uint64_t{1} << 32), 2, 3, 4, 5));
  EXPECT_NE(u, uniform_draw<float>(1, 3, 3, 4, 5));
  EXPECT_NE(u, uniform_draw<float>(1, 2, 2, 4, 5));
  EXPECT_NE(u, uniform_draw<float>(1, 2, 3, 5, 5));
  EXPECT_NE(u, uniform_draw<float>(1, 2, 3, 4, 4));
  EXPECT_NE(uniform_draw<float>(1, 2, 3, 4, 5), uniform_draw<float>(1, 2, 3, 5, 4));
}

TEST(UniformDraw, IsUniform) {
  constexpr Index rows = 256;
  constexpr Index columns = 256;
  constexpr int bins = 64;
  constexpr double count = double{rows} * columns;
  std::vector<double> histogram(bins);
  double sum = 0.0;
  double neighbours = 0.0;
  double before = 0.5;
  float largest_gap = 0.0f;
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < columns; ++j) {
      const double u = uniform_draw<double>(20240229, 1, 2, i, j);
      const float f = uniform_draw<float>(20240229, 1, 2, i, j);
      largest_gap = std::max(largest_gap, static_cast<float>(std::abs(u - f)));
      histogram[static_cast<std::size_t>(u * bins)] += 1.0;
      sum += u;
      neighbours += (u - 0.5) * (before - 0.5);
      before = u;
    }
  }
  EXPECT_LE(largest_gap, 0x1p-24f);
  // Five standard deviations of the mean, of the covariance of neighbours, and of chi squared.
  EXPECT_LE(std::abs(sum / count - 0.5), 5.0 * std::sqrt(1.0 / 12.0 / count));
  EXPECT_LE(std::abs(neighbours / count), 5.0 / 12.0 / std::sqrt(count));
  double chi_squared = 0.0;
  for (const double n : histogram) {
    chi_squared += (n - count / bins) * (n - count / bins) / (count / bins);
  }
  EXPECT_LE(std::abs(chi_squared - (bins - 1)), 5.0 * std::sqrt(2.0 * (bins - 1)));
}

}  // namespace fovea_test::core_philox
