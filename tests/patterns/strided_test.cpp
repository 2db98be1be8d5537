// SPDX-License-Identifier: MIT
/// \file
/// Tests of patterns/strided.hpp. (For masks see masks_test.cpp.)
#include "fovea/patterns/strided.hpp"

#include "patterns/enumeration.hpp"

namespace fovea_test::patterns_strided {

using fovea::StridedKeys;

TEST(StridedKeys, LongOnesMatchTheReferenceMask) {
  for (const Index l : {1, 2, 37}) {
    expect_mask(StridedKeys{l}, SequenceShape::of(1500, 1300, CausalAlignment::bottom_right),
                "long", [&](Index i, Index j) { return (i - j) % l == 0 && j <= i; });
  }
}

/// Rows of one residue are one dense block with one run at the same step.
TEST(StridedKeys, RowsOfAResidueAreOneBlock) {
  const Index l = 128;
  const SequenceShape shape = SequenceShape::of(16384, 16384, CausalAlignment::top_left);
  const auto plan = StridedKeys{l}.plan(shape);
  ASSERT_EQ(plan.block_count(), l);
  ASSERT_EQ(plan.key_block_count(), l);
  BlockStorage storage;
  for (Index b = 0; b < l; ++b) {
    const QueryBlock block = plan.block(b, storage);
    EXPECT_EQ(block.step, l);
    EXPECT_EQ(block.count, 128);
    ASSERT_EQ(block.run_count, 1);
    EXPECT_EQ(block.runs[0].step, l);
    EXPECT_EQ(block.runs[0].first, block.first);
    EXPECT_EQ(plan.key_block(b).step, l);
    EXPECT_EQ(plan.query_blocks(b).begin, b);
    EXPECT_EQ(plan.query_blocks(b).end, b + 1);
    EXPECT_EQ(plan.key_blocks(block).begin, b);
    EXPECT_EQ(plan.key_blocks(block).end, b + 1);
    EXPECT_FALSE(plan.meets(b, (b + 1) % l));
  }
}

TEST(StridedKeys, HugeStridesShowTheRowItself) {
  const Index l = fovea::kUnboundedKeys;
  expect_mask(StridedKeys{l}, SequenceShape::of(20, 30, CausalAlignment::bottom_right), "huge",
              [](Index i, Index j) { return i == j; });
}

TEST(CheckStrided, RefusesStridesBelowOne) {
  EXPECT_EQ(refusal([] { fovea::check_strided("Op", 0); }), "Op: stride is 0; expected at least 1");
  EXPECT_EQ(refusal([] { fovea::check_strided("Op", -3); }),
            "Op: stride is -3; expected at least 1");
  EXPECT_EQ(refusal([] { fovea::check_strided("Op", 1); }), "accepted");
}

}  // namespace fovea_test::patterns_strided
