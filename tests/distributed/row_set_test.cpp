// SPDX-License-Identifier: MIT
/// \file
/// Sets of rows against a list of flags.
#include "fovea/distributed/rows/row_set.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "support/fill.hpp"
#include "support/index.hpp"

namespace fovea_test::distributed_row_set {

using fovea::Range;
using fovea::RowBlock;
using fovea::distributed::intersection;
using fovea::distributed::row_count;
using fovea::distributed::RowSet;
using fovea::distributed::without;

std::vector<Range> ranges_of(const std::vector<bool>& flags) {
  std::vector<Range> ranges;
  for (Index n = 0; n < static_cast<Index>(flags.size()); ++n) {
    if (!flags[as_size(n)]) continue;
    if (ranges.empty() || ranges.back().end != n) ranges.push_back({n, n});
    ranges.back().end = n + 1;
  }
  return ranges;
}

TEST(RowSet, ContainsWhatWasAdded) {
  Draw draw(5);
  for (const Index rows : {1, 63, 64, 65, 128, 300}) {
    for (int trial = 0; trial < 40; ++trial) {
      RowSet set(rows);
      std::vector<bool> flags(as_size(rows));
      for (Index n = draw(0, 6); n > 0; --n) {
        const Index first = draw(0, rows - 1);
        const Index step = draw(1, 3) == 1 ? draw(1, 40) : 1;
        const Index count = draw(0, (rows - 1 - first) / step + 1);
        set.add(RowBlock{first, step, count});
        for (Index i = 0; i < count; ++i) flags[as_size(first + step * i)] = true;
      }
      EXPECT_EQ(set.ranges(), ranges_of(flags));
    }
  }
}

TEST(RowSet, IntersectionsAndDifferences) {
  Draw draw(6);
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<bool> a(90), b(90), both(90), only(90);
    for (std::size_t n = 0; n < 90; ++n) {
      a[n] = draw(0, 2) > 0;
      b[n] = draw(0, 2) > 0;
      both[n] = a[n] && b[n];
      only[n] = a[n] && !b[n];
    }
    std::vector<Range> found = intersection(ranges_of(a), ranges_of(b));
    EXPECT_EQ(row_count(found), row_count(ranges_of(both)));
    RowSet joined(90);
    for (const Range& range : found) joined.add(range);
    EXPECT_EQ(joined.ranges(), ranges_of(both));
    EXPECT_EQ(without(ranges_of(a), ranges_of(b)), ranges_of(only));
  }
}

/// Gaps are filled, the smallest first, as long as few rows are added.
TEST(RowSet, SmallGapsAreFilled) {
  using fovea::distributed::with_small_gaps;
  using Ranges = std::vector<Range>;
  EXPECT_EQ(with_small_gaps({}), Ranges{});
  EXPECT_EQ(with_small_gaps({{3, 5}, {6, 8}}), (Ranges{{3, 5}, {6, 8}}));
  EXPECT_EQ(with_small_gaps({{0, 20}, {21, 40}, {43, 60}}), (Ranges{{0, 60}}));
  EXPECT_EQ(with_small_gaps({{0, 10}, {11, 20}, {23, 30}}), (Ranges{{0, 20}, {23, 30}}));
  EXPECT_EQ(with_small_gaps({{0, 200}, {209, 400}}), (Ranges{{0, 200}, {209, 400}}));
  EXPECT_EQ(with_small_gaps({{0, 200}, {208, 400}}), (Ranges{{0, 400}}));
}

}  // namespace fovea_test::distributed_row_set
