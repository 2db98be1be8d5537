// SPDX-License-Identifier: MIT
/// \file
/// Tests of patterns/fixed.hpp and patterns/block_window.hpp. (For masks see masks_test.cpp.)
#include "fovea/patterns/fixed.hpp"

#include "patterns/enumeration.hpp"

namespace fovea_test::patterns_fixed {

using fovea::BlockWindow;
using fovea::FixedShape;

TEST(Fixed, BadShapesAreRefused) {
  const auto message = [](const FixedShape& shape) {
    return refusal([&] { fovea::check_fixed("Op", shape); });
  };
  EXPECT_EQ(message({0, 1}), "Op: stride is 0; expected at least 1");
  EXPECT_EQ(message({8, 0}), "Op: summary is 0; expected 1 to 8 keys: a block has stride keys");
  EXPECT_EQ(message({8, 9}), "Op: summary is 9; expected 1 to 8 keys: a block has stride keys");
  EXPECT_EQ(message({8, 3, 2}), "Op: sub-block is 2; expected 0 to 1: a block of 8 keys has 2");
  EXPECT_EQ(message({8, 3, -1}), "Op: sub-block is -1; expected 0 to 1: a block of 8 keys has 2");
  EXPECT_EQ(message({8, 8, 0}), "accepted");
  EXPECT_EQ(message({8, 2, 3}), "accepted");
}

TEST(BlockWindow, SidesOfAnySizeAreExact) {
  const SequenceShape shape = SequenceShape::of(20, 30, CausalAlignment::bottom_right);
  constexpr Index most = fovea::kUnboundedKeys;
  expect_mask(BlockWindow{4, most, most}, shape, "all", [](Index, Index) { return true; });
  expect_mask(BlockWindow{4, most, 0}, shape, "left",
              [](Index i, Index j) { return j / 4 <= i / 4; });
  expect_mask(BlockWindow{most / 2, 0, 0}, shape, "one block", [](Index, Index) { return true; });
}

/// Sums with a position do not overflow.
TEST(BlockWindow, ReachEndsFarAwayOrWithItsBlock) {
  constexpr Index most = fovea::kUnboundedKeys;
  const auto expect = [](const BlockWindow& window, Index keys) {
    EXPECT_EQ(window.receptive_field().before, keys);
    EXPECT_EQ(window.receptive_field().after, keys);
  };
  expect({4, 2, 2}, 11);
  expect({4, most, most}, fovea::kFarPosition / 4 * 4 - 1);
  expect({most / 2, most, most}, most / 2 - 1);
}

/// Blocks of rows are within blocks of the pattern, so that their rows see the same keys.
TEST(BlockWindow, RowsOfABlockShareTheirKeys) {
  const SequenceShape shape = SequenceShape::of(1000, 1037, CausalAlignment::bottom_right);
  for (const Index block : {16, 32, 64}) {
    const auto plan = BlockWindow{block, 1, 1}.plan(shape);
    BlockStorage storage(plan.most_runs());
    for (Index b = 0; b < plan.block_count(); ++b) {
      const QueryBlock rows = plan.block(b, storage);
      ASSERT_EQ(rows.run_count, 1);
      EXPECT_EQ(rows.runs[0].lower, nullptr);
    }
  }
}

TEST(BlockWindow, BadOnesAreRefused) {
  const auto message = [](const BlockWindow& window) {
    return refusal([&] { fovea::check_block_window("Op", window); });
  };
  EXPECT_EQ(message({0, 1, 1}), "Op: block is 0; expected at least 1");
  EXPECT_EQ(message({4, -1, 1}), "Op: left is -1; expected at least 0 blocks");
  EXPECT_EQ(message({4, 1, -2}), "Op: right is -2; expected at least 0 blocks");
  EXPECT_EQ(message({4, 1, 1}), "accepted");
}

}  // namespace fovea_test::patterns_fixed
