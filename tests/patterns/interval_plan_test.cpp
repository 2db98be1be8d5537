// SPDX-License-Identifier: MIT
/// \file
/// Tests of patterns/interval_plan.hpp, intervals.hpp, partition.hpp and plan_stats.hpp: what plans
/// of long sequences cost, counted.
#include "fovea/patterns/interval_plan.hpp"

#include <limits>

#include "fovea/patterns/any_pattern.hpp"
#include "fovea/patterns/block_list.hpp"
#include "fovea/patterns/combine.hpp"
#include "fovea/patterns/fixed.hpp"
#include "fovea/patterns/global.hpp"
#include "fovea/patterns/passes.hpp"
#include "fovea/patterns/random_blocks.hpp"
#include "fovea/patterns/window_and_tokens.hpp"
#include "patterns/enumeration.hpp"

namespace fovea_test::patterns_interval_plan {

using namespace fovea;

/// A pattern that counts calls of its functions.
template <class P>
struct Counted {
  P pattern;
  Index* asked;

  bool allows(Index i, Index j) const { return pattern.allows(i, j); }
  Index interval_count() const { return intervals().count(); }
  Index interval_capacity() const { return intervals().interval_capacity(); }
  Index row_step() const { return intervals().row_step(); }
  Index row_block() const { return intervals().row_block(); }
  StridedRange strided_range(Index s) const { return intervals().strided_range(s, 0); }
  bool causal_cut() const { return intervals().causal_cut(); }
  Index same_until(Index i) const { return intervals().same_until(i); }
  Index next_cut(Index i) const { return intervals().next_cut(i); }
  void keys_of(Index i, std::span<Range> to) const {
    ++*asked;
    intervals().keys_of(i, to);
  }
  Index linear_until(Index i) const requires fovea::LinearIntervals<P> {
    return pattern.linear_until(i);
  }
  IntervalPlan<Counted> plan(const SequenceShape& shape) const { return {*this, shape}; }

 private:
  Intervals<P> intervals() const { return Intervals<P>(pattern); }
};

/// Intervals that move alike from row to row are no bounds where the ends of the keys cut them to
/// the same.
TEST(IntervalPlan, RowsThatSeeAllKeysHaveNoBounds) {
  const auto plan = Window{.left = 900, .right = 900}.plan({300, 300, 0});
  BlockStorage storage(plan.most_runs());
  for (Index b = 0; b < plan.block_count(); ++b) {
    const QueryBlock block = plan.block(b, storage);
    ASSERT_EQ(block.run_count, 1);
    EXPECT_EQ(block.runs[0].count, 300);
    EXPECT_EQ(block.runs[0].lower, nullptr);
    EXPECT_EQ(block.runs[0].upper, nullptr);
  }
}

constexpr Index kLong = 65536;

/// Questions that all blocks of a long sequence ask.
template <class P>
Index questions(const P& pattern) {
  Index asked = 0;
  const Counted<P> counted{pattern, &asked};
  const auto plan = counted.plan({kLong, kLong, 0});
  BlockStorage storage(plan.most_runs());
  Index rows = 0;
  for (Index b = 0; b < plan.block_count(); ++b) rows += plan.block(b, storage).count;
  EXPECT_EQ(rows, kLong);
  return asked;
}

/// Once per row at most; once per block where its rows see the same, twice where what they see
/// moves along with them.
TEST(IntervalPlan, LongSequencesCallOncePerRow) {
  EXPECT_EQ(questions(Window{256, 0}), 256);
  EXPECT_EQ(questions(StridedKeys{256}), 256);
  EXPECT_EQ(questions(Dense{}), 128);
  EXPECT_EQ(questions(FixedSummary{{256, 8}}), 128);
  EXPECT_EQ(questions(FixedRemainder{{256, 8}}), 256);
  EXPECT_EQ(questions(unite(Window{256, 256}, GlobalTokens::first(64))), kLong);
  EXPECT_LE(questions(WindowAndTokens({256, 256}, GlobalTokens::first(64))), 300);
  const RandomBlocks random{64, 3, 1024, 0, 0, false, 2, 1};
  const auto bird = join(unite(GlobalTokens::first(128), BlockWindow{64, 1, 1}), random);
  EXPECT_EQ(questions(bird), kLong / 64);
}

/// Blocks of BigBird need no bounds: no mask code runs.
TEST(IntervalPlan, BlocksWhoseRowsSeeTheSameHaveNoBounds) {
  const RandomBlocks random{64, 3, 64, 0, 0, false, 2, 1};
  const auto plan =
      join(unite(GlobalTokens::first(128), BlockWindow{64, 1, 1}), random).plan({4096, 4096, 0});
  BlockStorage storage(plan.most_runs());
  for (Index b = 0; b < plan.block_count(); ++b) {
    const QueryBlock block = plan.block(b, storage);
    for (Index n = 0; n < block.run_count; ++n) EXPECT_EQ(block.runs[n].lower, nullptr);
  }
  const PlanStats stats = plan_stats(plan, {4096, 4096, 0});
  EXPECT_EQ(stats.attended_pairs, stats.computed_pairs);
  EXPECT_EQ(stats.useful(), 1);
}

TEST(IntervalPlan, VisiblePairsOfLongSequences) {
  const SequenceShape shape{kLong, kLong, 0};
  EXPECT_EQ(Causal{}.plan(shape).attended_pairs(), kLong * (kLong + 1) / 2);
  EXPECT_EQ(Dense{}.plan(shape).attended_pairs(), kLong * kLong);
  // Position i sees floor(i / 256) + 1 keys.
  EXPECT_EQ(StridedKeys{256}.plan(shape).attended_pairs(), 256 * (256 * 257 / 2));
  EXPECT_EQ(fixed_local(256).plan(shape).attended_pairs(), 256 * (256 * 257 / 2));
  // 8 columns of each earlier block; of the own one 1 + ... + 8.
  EXPECT_EQ((FixedSummary{{256, 8}}.plan(shape).attended_pairs()),
            8 * 256 * (256 * 255 / 2) + 256 * 36);
}

/// Counts above the maximum of Index saturate.
TEST(IntervalPlan, VisiblePairsSaturate) {
  constexpr Index most = std::numeric_limits<Index>::max();
  constexpr Index large = Index{1} << 32;
  const auto pairs = [](Index queries, Index keys) {
    return Dense{}.plan({queries, keys, 0}).attended_pairs();
  };
  EXPECT_EQ(pairs(large, large / 4), Index{1} << 62);
  EXPECT_EQ(pairs(large, large / 2), most);
  EXPECT_EQ(pairs(large, large), most);
  EXPECT_EQ(pairs(7, most / 7), most / 7 * 7);
  EXPECT_EQ(pairs(8, most / 7), most);
  // From position 2^60 on, row by row.
  EXPECT_EQ(Causal{}.plan({9, large << 29, large << 28}).attended_pairs(), most);
  const fovea::AnyPattern twice = fovea::MultiPass<Dense, Dense>({}, {});
  EXPECT_EQ(twice.attended_pairs({large, large / 8, 0}), Index{1} << 62);
  EXPECT_EQ(twice.attended_pairs({large, large / 4, 0}), most);
  const SequenceShape shape{600, Index{1} << 60, 0};
  const PlanStats stats = plan_stats(Dense{}.plan(shape), shape);
  EXPECT_EQ(stats.attended_pairs, most);
  EXPECT_EQ(stats.computed_pairs, most);
  EXPECT_EQ(fovea::add_pairs(most, 0, 5), most);
  EXPECT_EQ(fovea::add_pairs(most - 5, 5, 1), most);
  EXPECT_EQ(fovea::add_pairs(most - 5, 1, 6), most);
}

/// Counting does not take time proportional to the rows.
TEST(IntervalPlan, VisiblePairsOfHugeSequences) {
  constexpr Index most = std::numeric_limits<Index>::max();
  const auto pairs = [](const auto& pattern, Index n) {
    return pattern.plan(SequenceShape{n, n, 0}).attended_pairs();
  };
  constexpr Index n = Index{1} << 40;
  EXPECT_EQ(pairs(Window{3, 4}, n), 8 * n - (3 + 2 + 1) - (4 + 3 + 2 + 1));
  EXPECT_EQ(pairs(Causal{}, n >> 9), (n >> 9) * ((n >> 9) + 1) / 2);
  constexpr Index stride = Index{1} << 20;
  EXPECT_EQ(pairs(StridedKeys{stride}, n), stride * (stride * (stride + 1) / 2));
  EXPECT_EQ(pairs(StridedRemainder{stride}, n), stride * ((stride - 1) * (stride - 2) / 2));
  EXPECT_EQ(pairs(DilatedWindow{1, 2, stride}, n), 4 * n - stride * (1 + 2 + 1));
  EXPECT_EQ(pairs(FixedRemainder{{stride, 8}}, n), 8 * stride * (stride * (stride - 1) / 2));
  EXPECT_EQ(pairs(FixedSummary{{stride, 8}}, n),
            8 * stride * (stride * (stride - 1) / 2) + stride * 36);
  EXPECT_EQ(pairs(BlockWindow{stride, 1, 0, true}, n),
            stride * (stride * (stride + 1) / 2) + (stride - 1) * stride * stride);
  const GlobalTokens tokens = GlobalTokens::first_and(0, {5, 99});
  EXPECT_EQ(pairs(WindowAndTokens({1, 1}, tokens), n), 2 * n + (3 + 2) * (n - 2) - 2 - 4);
  // Few positions of many are listed.
  EXPECT_EQ(pairs(BlockList(4, 9, {{0, 1, 3}, {0, 2, 8}}), n), 4 * 4 + 4 * 8);

  for (const Index rows : {Index{1} << 62, (Index{1} << 62) - 1}) {
    EXPECT_EQ(pairs(Window{0, 0}, rows), rows);
    EXPECT_EQ(pairs(DilatedWindow{0, 0, n}, rows), rows);
    for (const Index l : {Index{1}, Index{128}, n, rows / 4}) {
      SCOPED_TRACE(l);
      EXPECT_EQ(pairs(Window{l, 0}, rows), l > 1 ? most : rows - 1 + rows);
      EXPECT_GT(pairs(StridedKeys{l, false}, rows), rows);
      EXPECT_GT(pairs(StridedRemainder{l, false}, rows), rows / 4);
      EXPECT_EQ(pairs(BlockWindow{l, 1, 1}, rows), most);
      EXPECT_GT(pairs(BlockWindow{l, 1, 1, true}, rows), rows);
      EXPECT_GT(pairs(FixedRemainder{{l, 1}}, rows), rows / 2);
      EXPECT_GT(pairs(FixedSummary{{l, 1}}, rows), rows / 2);
      EXPECT_EQ(pairs(RandomBlocks{.block = l, .key_blocks = rows / l}, rows), most);
    }
  }
}

/// Keys and rows beyond kFarPosition count, too: up to 2^62 of them.
TEST(IntervalPlan, VisiblePairsBeyondTheFarthestPosition) {
  using fovea::kFarPosition;
  constexpr Index most = Index{1} << 62;
  for (const Index keys : {kFarPosition - 1, kFarPosition, kFarPosition + 1, most - 1, most}) {
    SCOPED_TRACE(keys);
    const auto pairs = [&](const auto& pattern, Index queries = 1, Index from_end = 0) {
      return pattern.plan(SequenceShape{queries, keys, keys - queries - from_end}).attended_pairs();
    };
    EXPECT_EQ(pairs(Dense{}), keys);
    EXPECT_EQ((Dense{}.plan({1, keys, 0}).attended_pairs()), keys);
    EXPECT_EQ(pairs(Causal{}), keys);
    EXPECT_EQ(pairs(Causal{}, 1, 5), keys - 5);
    EXPECT_EQ(pairs(Window{7, Window::kUnbounded}), 8);
    EXPECT_EQ((Window{7, Window::kUnbounded}.plan({1, keys, 9}).attended_pairs()), keys - 2);
    EXPECT_EQ(pairs(Window{0, 0}, keys), keys);
    EXPECT_EQ(pairs(Window{2, 3}, 5, 10), 30);
    // A row whose window ends at kFarPosition.
    EXPECT_EQ((Window{2, 3}.plan({1, keys, kFarPosition - 4}).attended_pairs()),
              (std::min)(Index{6}, keys - kFarPosition + 6));
    constexpr Index unbounded = Window::kUnbounded;
    EXPECT_EQ(pairs(DilatedWindow{unbounded, unbounded, 2}), ceil_div(keys, 2));
    EXPECT_EQ(pairs(StridedKeys{1, false}), keys);
    EXPECT_EQ(pairs(StridedKeys{1, true}, 1, 3), keys - 3);
    EXPECT_EQ(pairs(StridedKeys{2, true}), ceil_div(keys, 2));
    EXPECT_EQ(pairs(StridedRemainder{1, false}, 1, 9), keys - 3);
    EXPECT_EQ(pairs(FixedSummary{{1, 1, 0, false}}), keys);
    EXPECT_EQ(pairs(FixedSummary{{2, 1, 0, false}}), keys / 2);
    EXPECT_EQ(pairs(FixedRemainder{{1, 1, 0, false}}, 1, 4), keys - 1);
    EXPECT_EQ(pairs(fixed_local(1), keys), keys);
    EXPECT_EQ(pairs(fixed_local(3), 3, keys % 3), 6);
    EXPECT_EQ(pairs(BlockWindow{1, 1, 1}, 4, 10), 12);
    EXPECT_EQ(pairs(BlockWindow{4, kUnboundedKeys, kUnboundedKeys}), keys);
    EXPECT_EQ(pairs(GlobalTokens::at({5, 99})), 2);
    EXPECT_EQ((GlobalTokens::at({5, 99}).plan({1, keys, 5}).attended_pairs()), keys);
    EXPECT_EQ(pairs(WindowAndTokens({1, 1}, GlobalTokens::at({5})), 1, 7), 4);
    EXPECT_EQ(pairs(intersect(Dense{}, FixedSummary{{2, 1, 0, false}})), keys / 2);
    EXPECT_EQ(pairs(subtract(FixedSummary{{2, 1, 0, false}}, Dense{})), 0);
    for (const Index from_end : {0, 1, 3, 4, 9}) {
      EXPECT_EQ(pairs(unite(Dense{}, Window{2, 3}), 1, from_end), keys);
      EXPECT_EQ(pairs(unite(Window{2, 3}, Dense{}), 2, from_end), fovea::add_pairs(0, 2, keys));
      EXPECT_EQ(pairs(subtract(Dense{}, Window{2, 2}), 1, from_end),
                keys - 3 - (std::min)(from_end, Index{2}));
      EXPECT_EQ(pairs(intersect(Dense{}, Window{2, 2}), 1, from_end),
                3 + (std::min)(from_end, Index{2}));
    }
  }
}

/// A column of summary keys is one block of keys; those of other columns are not requested.
TEST(IntervalPlan, KeysOfASummaryAreBlocksOfOneColumn) {
  const auto plan = FixedSummary{{128, 8}}.plan({16384, 16384, 0});
  ASSERT_EQ(plan.key_block_count(), 128);
  for (Index p = 0; p < plan.key_block_count(); ++p) {
    const KeyBlock keys = plan.key_block(p);
    EXPECT_EQ(keys.first, p);
    EXPECT_EQ(keys.step, 128);
    EXPECT_EQ(keys.count, 128);
    const Range seen = plan.query_blocks(p);
    EXPECT_EQ(seen.begin < seen.end, p >= 120);
    EXPECT_EQ(plan.meets(plan.block_count() - 1, p), p >= 120);
  }
}

TEST(PlanStats, DensityAndFlops) {
  const SequenceShape shape{128, 128, 0};
  const PlanStats stats = plan_stats(Causal{}.plan(shape), shape);
  EXPECT_EQ(stats.attended_pairs, 128 * 129 / 2);
  EXPECT_EQ(stats.computed_pairs, 16 * (16 + 32 + 48 + 64 + 80 + 96 + 112 + 128));
  EXPECT_DOUBLE_EQ(stats.density(), 129.0 / 256);
  EXPECT_DOUBLE_EQ(stats.useful(), 8256.0 / 9216);
  EXPECT_EQ(plan_stats(Causal{}.plan({0, 5, 5}), {0, 5, 5}).density(), 0);
  const FlopCount flops{64, 32};
  EXPECT_EQ(flops.forward(10), 2 * 96 * 10);
  EXPECT_EQ(flops.backward(10), 2 * (192 + 64) * 10);
}

TEST(BlockStorage, HasTheCapacityItWasAllocatedFor) {
  BlockStorage one;
  EXPECT_EQ(one.capacity(), 1);
  EXPECT_NE(one.lower(0), one.upper(0));
  BlockStorage many(5);
  EXPECT_EQ(many.capacity(), 5);
  EXPECT_EQ(many.intervals().size(), 5u);
  for (Index r = 0; r < 5; ++r) {
    for (Index s = 0; s < r; ++s) EXPECT_NE(many.lower(r), many.lower(s));
    many.lower(r)[kMaxBlockRows - 1] = r;
    many.upper(r)[kMaxBlockRows - 1] = -r;
  }
  for (Index r = 0; r < 5; ++r) EXPECT_EQ(many.lower(r)[kMaxBlockRows - 1], r);
}

TEST(ResidueBlocks, HoldEachIndexOnce) {
  for (Index count = 0; count < 40; ++count) {
    for (const Index step : {1, 2, 3, 7, 39, 40, 100}) {
      for (const Index rows : {1, 4, 64}) {
        const ResidueBlocks row_blocks(count, step, rows);
        std::vector<Index> of(as_size(count), -1);
        for (Index n = 0; n < row_blocks.size(); ++n) {
          const RowBlock row_block = row_blocks[n];
          ASSERT_GE(row_block.count, 1);
          ASSERT_LE(row_block.count, rows);
          for (Index m = 0; m < row_block.count; ++m) {
            Index& at = of[as_size(row_block.first + row_block.step * m)];
            ASSERT_EQ(at, -1);
            at = n;
          }
          EXPECT_EQ(row_block.span().end, row_block.first + step * (row_block.count - 1) + 1);
        }
        for (Index i = 0; i < count; ++i) {
          ASSERT_GE(of[as_size(i)], 0);
          const Range range = row_blocks.range(i % step, {i, i + 1});
          EXPECT_EQ(range.begin, of[as_size(i)]);
          EXPECT_EQ(range.end, of[as_size(i)] + 1);
        }
      }
    }
  }
}

TEST(FloorDiv, RoundsDown) {
  for (Index a = -20; a <= 20; ++a) {
    for (Index b = 1; b < 7; ++b) {
      EXPECT_EQ(floor_div(a, b) * b + floor_mod(a, b), a);
      EXPECT_GE(floor_mod(a, b), 0);
      EXPECT_LT(floor_mod(a, b), b);
    }
  }
}

}  // namespace fovea_test::patterns_interval_plan
