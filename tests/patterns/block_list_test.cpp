// SPDX-License-Identifier: MIT
/// \file
/// Tests of patterns/block_list.hpp. (For masks see masks_test.cpp.)
#include "fovea/patterns/block_list.hpp"

#include "patterns/enumeration.hpp"

namespace fovea_test::patterns_block_list {

using fovea::BlockList;
using fovea::BlockRows;

TEST(BlockList, NeighboursAreOneRun) {
  const BlockList list(64, 8, {{0, 5, 6}, {0, 1, 4, 5, 6, 2}});
  const auto plan = list.plan(SequenceShape::of(128, 512, CausalAlignment::top_left));
  BlockStorage storage(plan.most_runs());
  ASSERT_EQ(plan.block_count(), 2);
  const QueryBlock block = plan.block(0, storage);
  ASSERT_EQ(block.run_count, 2);
  EXPECT_EQ(block.runs[0].count, 128);
  EXPECT_EQ(block.runs[1].first, 256);
  EXPECT_EQ(block.runs[1].count, 192);
  EXPECT_EQ(plan.block(1, storage).run_count, 1);
}

TEST(BlockList, BadListsAreRefused) {
  const auto message = [](Index block, const BlockRows& rows) {
    return refusal([&] { BlockList(block, 4, rows, false, "Op"); });
  };
  EXPECT_EQ(message(0, {{0}, {}}), "Op: block is 0; expected at least 1");
  EXPECT_EQ(message(8, {{}, {}}), "Op: offsets is required: 0, and the end of each row of columns");
  EXPECT_EQ(message(8, {{1, 2}, {0, 1}}), "Op: offsets[0] is 1; expected 0");
  EXPECT_EQ(message(8, {{0, 2, 1}, {0, 1}}),
            "Op: offsets[2] is 1; expected 2: offsets ascend, up to the number of columns");
  EXPECT_EQ(message(8, {{0, 3}, {0, 1}}),
            "Op: offsets[1] is 3; expected 0 to 2: offsets ascend, up to the number of columns");
  EXPECT_EQ(message(8, {{0, 1}, {0, 1}}),
            "Op: the last of offsets is 1; expected 2, the number of columns");
  EXPECT_EQ(message(8, {{0, 2}, {0, 4}}),
            "Op: columns[1], of row 0, is 4; expected 0 to 3, the blocks of keys");
  EXPECT_EQ(message(8, {{0, 1}, {-1}}),
            "Op: columns[0], of row 0, is -1; expected 0 to 3, the blocks of keys");
  EXPECT_EQ(message(8, {{0, 1, 3}, {3, 2, 1}}),
            "Op: columns[2], of row 1, is 1; expected more than 2: the columns of a row ascend");
  EXPECT_EQ(message(8, {{0, 2}, {2, 2}}),
            "Op: columns[1], of row 0, is 2; expected more than 2: the columns of a row ascend");
  EXPECT_EQ(message(8, {{0, 2}, {0, 0}}),
            "Op: columns[1], of row 0, is 0; expected more than 0: the columns of a row ascend");
  EXPECT_EQ(message(8, {{0, 2, 2, 3}, {0, 3, 0}}), "accepted");
}

}  // namespace fovea_test::patterns_block_list
