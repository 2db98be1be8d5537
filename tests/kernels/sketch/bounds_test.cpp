// SPDX-License-Identifier: MIT
// fovea_test(ALONE)
/// \file
/// The bounds of a block's logits and of the sum of their exponentials, against the keys
/// themselves, at every level: they are valid, and tight if logits hardly differ.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "fovea/core/key_run.hpp"
#include "fovea/core/philox.hpp"
#include "fovea/kernels/sketch/select.hpp"
#include "fovea/simd/isa.hpp"
#include "fovea/simd/matrix.hpp"
#include "kernels/sketch/drawn_blocks.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"

namespace {

/// The functions of bounds_body.inl.hpp for one level.
template <class T>
struct BoundMath {
  using Index = fovea::Index;
  void (*bound)(const T* q, const T* moments, Index width, Index blocks, T* factors, T* memory);
};

}  // namespace

#define FOVEA_LEVEL_BODY "kernels/sketch/bounds_body.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

namespace fovea_test {
namespace {

using fovea::kBlockKeys;

constexpr double kVanishing = 1e-36;

template <class T>
BoundMath<T> at_level() {
  return FOVEA_AT_LEVEL(fovea::isa_level(), operations<T>());
}

/// Returns the largest part of a sum that its bounds leave open.
template <class T>
double expect_bounds(const DrawnBlocks<T>& blocks, double size, std::uint64_t seed) {
  const Index d = blocks.width;
  const Fill draw = gaussian(seed, size);
  std::vector<T> q(as_size(d * 4));
  for (Index c = 0; c < d; ++c) {
    std::fill_n(q.begin() + c * 4, 4, static_cast<T>(draw(0, 0, 0, c)));
  }
  std::vector<T> factors(as_size(fovea::sketch_moments(d) * 4));
  std::vector<T> row(5 * kBlocks);
  at_level<T>().bound(q.data(), blocks.moments.data(), d, kBlocks, factors.data(), row.data());
  const T top = *std::max_element(row.begin(), row.begin() + kBlocks);
  constexpr double room = sizeof(T) == 4 ? 0x1p-16 : 0x1p-44;
  double open = 0;
  for (Index b = 0; b < kBlocks; ++b) {
    long double sum = 0;
    for (Index n = 0; n < kBlockKeys; ++n) {
      long double logit = 0;
      long double magnitude = 0;
      for (Index c = 0; c < d; ++c) {
        const long double term = static_cast<long double>(q[as_size(c * 4)]) * blocks.key(b, n, c);
        logit += term;
        magnitude += std::abs(term);
      }
      EXPECT_LE(logit, row[as_size(kBlocks + b)] + room * magnitude);
      sum += std::exp2(logit - top);
    }
    if (!(sum < 1e30L)) continue;  // larger sums of a block are not bounded, but looked into
    const double least = static_cast<double>(row[as_size(3 * kBlocks + b)]);
    const double gap = static_cast<double>(row[as_size(4 * kBlocks + b)]);
    // The sum of the block with the largest mean is kBlockKeys or more: the smallest ones vanish.
    EXPECT_LE(least * (1 - room * (1 + size)), sum + kVanishing);
    EXPECT_GE((least + gap) * (1 + room * (1 + size)) + kVanishing, sum);
    open = std::max(open, gap / least);
  }
  return open;
}

template <class T>
void expect_all_bounds() {
  for (const Index d : {1, 2, 4, 8}) {
    for (const double deviation : {0.0, 1e-4, 0.03, 0.3, 2.0}) {
      const DrawnBlocks<T> blocks(d, deviation, static_cast<std::uint64_t>(d));
      for (const double size : {1e-3, 0.1, 1.0, 3.0, 20.0}) {
        SCOPED_TRACE("d " + std::to_string(d) + ", keys " + std::to_string(deviation) + ", query " +
                     std::to_string(size));
        for (std::uint64_t seed = 10; seed < 14; ++seed) expect_bounds(blocks, size, seed);
      }
    }
  }
}

TEST(SketchBounds, Hold) {
  at_each_level([] {
    expect_all_bounds<float>();
    expect_all_bounds<double>();
  });
}

/// The gap decreases with the third power of a block's extent.
TEST(SketchBounds, AreTightForSmallBlocks) {
  at_each_level([] {
    double before = expect_bounds(DrawnBlocks<double>(4, 0.08, 1), 1, 10);
    EXPECT_LT(before, 1);
    for (const double deviation : {0.04, 0.02, 0.01}) {
      const double open = expect_bounds(DrawnBlocks<double>(4, deviation, 1), 1, 10);
      EXPECT_LT(open, before / 6);
      before = open;
    }
  });
}

}  // namespace
}  // namespace fovea_test
