// SPDX-License-Identifier: MIT
/// \file
/// Every pair of a row and its mirror image is on one rank, which has one of both; few rows travel.
#include "fovea/distributed/rows/row_pairs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "support/index.hpp"

namespace fovea_test::distributed_row_pairs {

using fovea::Range;
using fovea::distributed::intersection;
using fovea::distributed::layout_of_pairs;
using fovea::distributed::row_count;
using fovea::distributed::RowLayout;
using fovea::distributed::rows_of_pairs;

/// The rows that a rank's pairs need, and it does not have.
Index received(const RowLayout& layout, const RowLayout& pairs, int rank) {
  const std::vector<Range> rows = rows_of_pairs(pairs.of(rank), layout.rows());
  return row_count(rows) - row_count(intersection(rows, layout.of(rank)));
}

TEST(RowPairs, AreWhereOneOfTheirRowsIs) {
  for (const Index rows : {0, 1, 2, 3, 4, 5, 64, 1001}) {
    for (const int ranks : {1, 2, 3, 7, 100}) {
      for (const RowLayout& layout :
           {RowLayout::contiguous(rows, ranks), RowLayout::zigzag(rows, ranks),
            RowLayout::block_cyclic(rows, ranks, 7)}) {
        const RowLayout pairs = layout_of_pairs(layout);
        EXPECT_EQ(pairs.rows(), rows == 0 ? 0 : rows / 2 + 1);
        std::vector<int> needed(as_size(rows));
        for (int rank = 0; rank < ranks; ++rank) {
          EXPECT_LE(received(layout, pairs, rank), pairs.count(rank));
          Index before = 0;
          for (const Range& range : rows_of_pairs(pairs.of(rank), rows)) {
            EXPECT_LE(before, range.begin);
            before = range.end;
            for (Index n = range.begin; n < range.end; ++n) ++needed[as_size(n)];
          }
        }
        EXPECT_EQ(std::count(needed.begin(), needed.end(), 1), rows);
      }
    }
  }
}

TEST(RowPairs, AreSharedOutEvenly) {
  const int ranks = 8;
  for (const Index rows : {8192, 9001}) {
    const RowLayout contiguous = RowLayout::contiguous(rows, ranks);
    const RowLayout zigzag = RowLayout::zigzag(rows, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      const Index even = rows / 2 / ranks;
      EXPECT_LE(std::abs(layout_of_pairs(contiguous).count(rank) - even), even / 8);
      EXPECT_LE(std::abs(layout_of_pairs(zigzag).count(rank) - even), even / 8);
      EXPECT_LE(received(zigzag, layout_of_pairs(zigzag), rank), 2 * ranks);  // of hundreds
    }
  }
}

/// A rank that has all rows computes all pairs.
TEST(RowPairs, StayOnTheOnlyRank) {
  const RowLayout layout({{}, {{0, 100}}, {}});
  const RowLayout pairs = layout_of_pairs(layout);
  EXPECT_EQ(pairs.count(1), 51);
  EXPECT_EQ(received(layout, pairs, 1), 0);
}

}  // namespace fovea_test::distributed_row_pairs
