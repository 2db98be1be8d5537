// SPDX-License-Identifier: MIT
/// \file
/// Blocks of keys in turn against the layout that lists them.
#include "fovea/distributed/softmax/key_blocks.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "support/index.hpp"

namespace fovea_test::distributed_key_blocks {

using fovea::Range;
using fovea::distributed::KeyBlocks;
using fovea::distributed::RowLayout;

TEST(KeyBlocks, FollowFromTheLayout) {
  for (const int ranks : {1, 2, 3, 7}) {
    for (const Index block : {1, 4, 10}) {
      const KeyBlocks blocks(block, ranks);
      EXPECT_EQ(blocks.size(), block);
      EXPECT_EQ(blocks.ranks(), ranks);
      for (const Index length : {0, 1, 10, 40, 41, 123}) {
        const RowLayout layout = RowLayout::block_cyclic(length, ranks, block);
        for (int rank = 0; rank < ranks; ++rank) {
          EXPECT_EQ(blocks.count(rank, length), layout.count(rank));
          Index place = 0;
          for (const Range& range : layout.of(rank)) {
            for (Index n = range.begin; n < range.end; ++n, ++place) {
              EXPECT_EQ(blocks.rank_of(n), rank);
              EXPECT_EQ(blocks.place(n), place);
            }
          }
        }
      }
    }
  }
}

TEST(KeyBlocks, RangesContainTheRanksPositions) {
  const KeyBlocks blocks(5, 3);
  for (const Index begin : {0, 3, 14, 15, 29}) {
    for (const Index end : {begin, begin + 1, begin + 4, begin + 40}) {
      for (int rank = 0; rank < 3; ++rank) {
        std::vector<Index> got;
        blocks.for_each_range(rank, begin, end, [&](const Range& range) {
          for (Index n = range.begin; n < range.end; ++n) got.push_back(n);
        });
        std::vector<Index> expected;
        for (Index n = begin; n < end; ++n) {
          if (blocks.rank_of(n) == rank) expected.push_back(n);
        }
        EXPECT_EQ(got, expected) << begin << " " << end << " " << rank;
      }
    }
  }
}

TEST(KeyBlocks, AdjacentBlocksAreMerged) {
  const KeyBlocks blocks(5, 3);
  EXPECT_TRUE(blocks.are_together(5, 9));
  EXPECT_FALSE(blocks.are_together(4, 5));
  EXPECT_FALSE(blocks.are_together(0, 15));  // on one rank, but not neighbours
  EXPECT_TRUE(KeyBlocks(5, 1).are_together(0, 15));
}

}  // namespace fovea_test::distributed_key_blocks
