// SPDX-License-Identifier: MIT
// fovea_test(HEAP)
/// \file
/// Tests of kernels/softmax_block.hpp for blocks that no window makes: steps, several runs, bounds
/// of any kind.
#include "fovea/kernels/softmax/block.hpp"

#include <gtest/gtest.h>

#include <set>

#include "kernels/softmax/drawn_block.hpp"
#include "support/levels.hpp"

namespace fovea_test::kernels_softmax_block {

/// The oracle's rows of a block, in order.
template <class T>
Expected<T> oracle_of(const Block& block, const Data<T>& data) {
  const View<T> q = data.q.view();
  const View<const T> rows(&q(0, 0, block.block.first, 0), {1, 1, block.block.count, data.width},
                           {0, 0, q.strides()[2] * block.block.step, q.strides()[3]});
  return softmax_oracle(bench::AllInputs<T>{rows, data.k.view(), data.v.view()}, Wide<T>{0.25},
                        [&](Index, Index, Index r, Index j) { return block.sees(r, j); });
}

template <class T>
void expect_block(std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Block block = draw_block(seed);
  const Data<T> data(seed);
  const Expected<T> expected = oracle_of(block, data);
  std::optional<Written<T>> fused;  // of the first level with fused multiply-add
  at_each_level([&] {
    const Written<T> written = call(block, data, seed % 2 == 0 ? Guard::before : Guard::behind);
    Written<T> rows;
    for (Index r = 0; r < block.block.count; ++r) {
      const std::vector<T> row = row_of(written, data, block, r);
      rows.out.insert(rows.out.end(), row.begin(), row.end() - 1);
      rows.lse.push_back(row.back());
      if (r % 5 != 0) continue;
      const Block alone = block.alone(r);
      const Written<T> one = call(alone, data, Guard::behind);
      EXPECT_TRUE(same_bits(row, row_of(one, data, alone, 0))) << "row " << r << " alone";
    }
    EXPECT_TRUE(within_ratio(rows.out, expected.out, 16));
    EXPECT_TRUE(within_ratio(rows.lse, expected.lse, 8));
    const auto untouched = std::count(written.lse.begin(), written.lse.end(), T{77});
    EXPECT_EQ(untouched, kQueries - block.block.count);
    if (fovea::isa_level() == IsaLevel::baseline) return;
    if (!fused) fused = written;
    EXPECT_TRUE(same_bits(fused->out, written.out));
    EXPECT_TRUE(same_bits(fused->lse, written.lse));
  });
}

template <class T>
class SoftmaxBlock : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(SoftmaxBlock, Scalars);

TYPED_TEST(SoftmaxBlock, AnyBlockMatchesTheOracle) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) expect_block<TypeParam>(seed);
}

TYPED_TEST(SoftmaxBlock, OptionsMatchTheirFormulas) {
  using T = TypeParam;
  for (std::uint64_t seed = 200; seed < 225; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const MappedBlock<T> mapped(seed);
    const Block& block = mapped.block;
    std::optional<Written<T>> fused;  // of the first level with fused multiply-add
    at_each_level([&] {
      const Guard guard = seed % 2 == 0 ? Guard::before : Guard::behind;
      const Written<T> written = call(block, mapped.data, guard, mapped.options);
      for (Index r = 0; r < block.block.count; ++r) {
        const std::vector<T> row = row_of(written, mapped.data, block, r);
        EXPECT_TRUE(within_ratio(row, mapped.expected(r), 16)) << "row " << r;
        if (r % 5 != 0) continue;
        const Block alone = block.alone(r);
        const Written<T> one = call(alone, mapped.data, guard, mapped.options);
        EXPECT_TRUE(same_bits(row, row_of(one, mapped.data, alone, 0))) << "row " << r << " alone";
      }
      if (fovea::isa_level() == IsaLevel::baseline) return;
      if (!fused) fused = written;
      EXPECT_TRUE(same_bits(fused->out, written.out));
      EXPECT_TRUE(same_bits(fused->lse, written.lse));
    });
  }
}

/// Rows across a segment's end that begin at different keys, each against itself alone.
TYPED_TEST(SoftmaxBlock, TilesAndSegmentsHaveAbsolutePositions) {
  const Data<TypeParam> data(1);
  Block block;
  block.block = {7, 1, 40, nullptr, 0};
  block.bounds.resize(2);
  for (Index r = 0; r < 40; ++r) {
    block.bounds[0].push_back(r * 53);
    block.bounds[1].push_back(fovea::kKeySegment - 300 + r * 20);
  }
  block.runs = {{0, 1, kKeys, block.bounds[0].data(), block.bounds[1].data()}};
  at_each_level([&] {
    const Written<TypeParam> together = call(block, data, Guard::behind);
    for (Index r = 0; r < 40; ++r) {
      const Block alone = block.alone(r);
      EXPECT_TRUE(same_bits(row_of(together, data, block, r),
                            row_of(call(alone, data, Guard::behind), data, alone, 0)))
          << "row " << r;
    }
  });
}

/// Rows of whole registers, which the band form takes in pairs, and intervals that go backwards: a
/// pattern may have them. Each against itself alone.
TYPED_TEST(SoftmaxBlock, BandsMayGoBackwards) {
  Block block;
  block.block = {7, 1, 40, nullptr, 0, fovea::kBandKeys};
  block.bounds.resize(2);
  for (Index r = 0; r < 40; ++r) {
    block.bounds[0].push_back(40 - r);
    block.bounds[1].push_back(49 - r);
  }
  block.runs = {{100, 1, 49, block.bounds[0].data(), block.bounds[1].data()}};
  at_each_level([&] {
    for (const Index width : {32, 64, 128}) {
      const Data<TypeParam> data(4, width, width);
      const Written<TypeParam> together = call(block, data, Guard::behind);
      for (Index r = 0; r < 40; ++r) {
        const Block alone = block.alone(r);
        EXPECT_TRUE(same_bits(row_of(together, data, block, r),
                              row_of(call(alone, data, Guard::behind), data, alone, 0)))
            << "width " << width << ", row " << r;
      }
    }
  });
}

/// Keys that rows do not see may contain anything.
TYPED_TEST(SoftmaxBlock, InvisibleKeysDoNotChangeBits) {
  using T = TypeParam;
  at_each_level([] {
    for (std::uint64_t seed = 100; seed < 140; ++seed) {
      const Block block = draw_block(seed);
      const Data<T> data(seed);
      const Written<T> clean = call(block, data, Guard::behind);
      Draw draw(seed);
      std::set<Index> poisoned;
      const T bad[] = {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(),
                       std::numeric_limits<T>::max()};
      const Index period = draw(0, 1) == 0 ? 2 : 50;
      for (Index j = 0; j < kKeys; ++j) {
        bool seen = false;
        for (Index r = 0; r < block.block.count && !seen; ++r) seen = block.sees(r, j);
        if (seen && draw(0, period) != 0) continue;
        poisoned.insert(j);
        for (Index c = 0; c < data.width; ++c) data.k(0, 0, j, c) = bad[j % 3];
        for (Index c = 0; c < data.value_width; ++c) data.v(0, 0, j, c) = bad[(j + 1) % 3];
      }
      const Written<T> dirty = call(block, data, Guard::behind);
      for (Index r = 0; r < block.block.count; ++r) {
        const bool blind = std::none_of(poisoned.begin(), poisoned.end(),
                                        [&](Index j) { return block.sees(r, j); });
        if (!blind) continue;
        EXPECT_TRUE(same_bits(row_of(clean, data, block, r), row_of(dirty, data, block, r)))
            << "seed " << seed << ", row " << r;
      }
    }
  });
}

/// A visible NaN reaches its row, also at the edges of a pattern; other rows keep their bits.
TYPED_TEST(SoftmaxBlock, VisibleNaNReachesExactlyTheRowsThatSeeIt) {
  using T = TypeParam;
  constexpr Index rows = 75;
  constexpr Index reach = 41;
  Block block;
  block.block = {3, 1, rows, nullptr, 0};
  block.bounds.resize(2);
  for (Index r = 0; r < rows; ++r) {
    block.bounds[0].push_back(r);
    block.bounds[1].push_back(r + reach);
  }
  block.runs = {{100, 1, rows + reach, block.bounds[0].data(), block.bounds[1].data()}};
  at_each_level([&] {
    const Data<T> data(1);
    const Written<T> clean = call(block, data, Guard::behind);
    for (Index j = 95; j < 100 + rows + reach + 5; ++j) {
      const bool in_keys = j % 2 == 0;
      T& element = in_keys ? data.k(0, 0, j, 1) : data.v(0, 0, j, 1);
      const T before = element;
      element = std::numeric_limits<T>::quiet_NaN();
      const Written<T> dirty = call(block, data, Guard::behind);
      element = before;
      for (Index r = 0; r < rows; ++r) {
        SCOPED_TRACE("key " + std::to_string(j) + ", row " + std::to_string(r));
        const std::vector<T> row = row_of(dirty, data, block, r);
        if (!block.sees(r, j)) {
          EXPECT_TRUE(same_bits(row_of(clean, data, block, r), row));
          continue;
        }
        EXPECT_TRUE(std::isnan(row[1]));
        EXPECT_EQ(std::isnan(row[0]), in_keys);
        EXPECT_EQ(std::isnan(row.back()), in_keys);
      }
    }
  });
}

}  // namespace fovea_test::kernels_softmax_block
