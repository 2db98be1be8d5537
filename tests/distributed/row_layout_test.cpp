// SPDX-License-Identifier: MIT
/// \file
/// Layouts contain every row once, and refuse lists that do not.
#include "fovea/distributed/row_layout.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "support/index.hpp"
#include "support/refusal.hpp"

namespace fovea_test::distributed_row_layout {

using fovea::Range;
using fovea::distributed::RowLayout;

std::vector<RowLayout> layouts(Index rows, int ranks) {
  return {RowLayout::contiguous(rows, ranks), RowLayout::zigzag(rows, ranks),
          RowLayout::block_cyclic(rows, ranks, 7), RowLayout::contiguous(rows, ranks, 64),
          RowLayout::zigzag(rows, ranks, 16)};
}

TEST(RowLayout, ContainsEveryRowOnce) {
  for (const Index rows : {0, 1, 5, 64, 1000}) {
    for (const int ranks : {1, 2, 3, 7, 100}) {
      for (const RowLayout& layout : layouts(rows, ranks)) {
        EXPECT_EQ(layout.rows(), rows);
        EXPECT_EQ(layout.ranks(), ranks);
        std::vector<int> held(as_size(rows));
        for (int rank = 0; rank < ranks; ++rank) {
          Index count = 0;
          Index before = -1;
          for (const Range& range : layout.of(rank)) {
            EXPECT_LT(before, range.begin);  // with a gap, or it would be one range
            EXPECT_LT(range.begin, range.end);
            before = range.end;
            for (Index n = range.begin; n < range.end; ++n) ++held[as_size(n)];
            count += range.end - range.begin;
          }
          EXPECT_EQ(layout.count(rank), count);
        }
        EXPECT_EQ(held, std::vector<int>(as_size(rows), 1));
      }
    }
  }
}

TEST(RowLayout, MatchesItsName) {
  using Ranges = std::vector<Range>;
  EXPECT_EQ(RowLayout::contiguous(10, 3).of(0), (Ranges{{0, 4}}));
  EXPECT_EQ(RowLayout::contiguous(10, 3).of(2), (Ranges{{7, 10}}));
  EXPECT_EQ(RowLayout::zigzag(8, 2).of(0), (Ranges{{0, 2}, {6, 8}}));
  EXPECT_EQ(RowLayout::zigzag(8, 2).of(1), (Ranges{{2, 6}}));
  EXPECT_EQ(RowLayout::block_cyclic(10, 2, 3).of(0), (Ranges{{0, 3}, {6, 9}}));
  EXPECT_EQ(RowLayout::block_cyclic(10, 2, 3).of(1), (Ranges{{3, 6}, {9, 10}}));
  EXPECT_EQ(RowLayout({{{0, 2}, {2, 3}}, {}, {{3, 3}, {3, 9}}}).of(0), (Ranges{{0, 3}}));
  // In whole blocks of 4 rows, of which the last one is shorter, or missing.
  EXPECT_EQ(RowLayout::contiguous(18, 2, 4).of(0), (Ranges{{0, 12}}));
  EXPECT_EQ(RowLayout::contiguous(18, 2, 4).of(1), (Ranges{{12, 18}}));
  EXPECT_EQ(RowLayout::contiguous(5, 3, 4).of(2), Ranges{});
  EXPECT_EQ(RowLayout::zigzag(30, 2, 4).of(0), (Ranges{{0, 8}, {24, 30}}));
  EXPECT_EQ(RowLayout::zigzag(8, 1), RowLayout::contiguous(8, 1));
  EXPECT_NE(RowLayout::zigzag(8, 2), RowLayout::contiguous(8, 2));
}

TEST(RowLayout, RefusesInvalidLayouts) {
  const auto refused = [](std::vector<std::vector<Range>> list) {
    return refusal([&] { RowLayout made(std::move(list)); });
  };
  EXPECT_EQ(refused({}), "RowLayout: ranks is 0; expected at least 1");
  EXPECT_EQ(refused({{{0, 4}}, {{5, 6}}}),
            "RowLayout: the first row of a range is 5; expected 4: every row belongs to exactly "
            "one rank");
  EXPECT_EQ(refused({{{0, 4}}, {{3, 6}}}),
            "RowLayout: the first row of a range is 3; expected 4: every row belongs to exactly "
            "one rank");
  EXPECT_EQ(refused({{{1, 4}}}),
            "RowLayout: the first row of a range is 1; expected 0: every row belongs to exactly "
            "one rank");
  EXPECT_EQ(
      refused({{{4, 6}, {0, 4}}}),
      "RowLayout: [4, 6) is followed by [0, 4); the ranges of a rank must ascend, without overlap");
  EXPECT_EQ(refusal([] { RowLayout::contiguous(-1, 2); }),
            "RowLayout: rows is -1; expected at least 0");
  EXPECT_EQ(refusal([] { RowLayout::zigzag(5, 0); }), "RowLayout: ranks is 0; expected at least 1");
  EXPECT_EQ(refusal([] { RowLayout::contiguous(5, 2, 0); }),
            "RowLayout: multiple is 0; expected at least 1");
  EXPECT_EQ(refusal([] { RowLayout::block_cyclic(5, 2, 0); }),
            "RowLayout: block is 0; expected at least 1");
}

}  // namespace fovea_test::distributed_row_layout
