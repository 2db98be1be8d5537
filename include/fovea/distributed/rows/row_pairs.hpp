// SPDX-License-Identifier: MIT
/// \file
/// Which rank computes results of row n and its mirror image N - n, with few rows sent.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "fovea/distributed/row_layout.hpp"
#include "fovea/distributed/rows/row_set.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The pairs of rows of a sequence by the rank that computes them: pair n, in [0, N / 2], is that
/// of rows n and N - n, and of row 0 alone if n is 0.
///
/// The rank holds one of both rows, so it has at most as many pairs as rows. Blocks of pairs
/// alternate between the rank of row n and that of its mirror image. If one rank has nearly all of
/// both, as in a zigzag layout, almost nothing is sent; in a contiguous layout, ranks compute about
/// equally many pairs, and send half of their rows. Cost: linear in the sequence's rows.
inline RowLayout layout_of_pairs(const RowLayout& layout) {
  const Index rows = layout.rows();
  const Index pairs = rows / 2 + 1;
  // Blocks are long, since few ranges are sent faster, but enough for an even balance.
  constexpr Index of_rank = 16;
  const Index block = (std::max)(Index{1}, pairs / (of_rank * layout.ranks()));
  std::vector<std::vector<Range>> of_ranks;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    RowSet own(pairs);
    for (const Range& range : layout.of(rank)) {
      for (Index n = range.begin; n < range.end; ++n) {
        const bool is_mirror = 2 * n > rows;
        const Index pair = is_mirror ? rows - n : n;
        const bool goes_to_mirror = pair / block % 2 == 1;
        const bool is_alone = pair == 0 || 2 * pair == rows;
        if (is_alone || goes_to_mirror == is_mirror) own.add(pair);
      }
    }
    of_ranks.push_back(own.ranges());
  }
  return RowLayout(std::move(of_ranks));
}

/// The rows of some pairs, as ascending disjoint ranges.
/// \param pairs ascending, disjoint   \param rows N
inline std::vector<Range> rows_of_pairs(const std::vector<Range>& pairs, Index rows) {
  std::vector<Range> found = pairs;
  for (std::size_t n = pairs.size(); n-- > 0;) {
    // Excludes rows that are their own mirror images.
    const Range mirrors =
        Range{rows - pairs[n].end + 1, rows - pairs[n].begin + 1}.within({rows / 2 + 1, rows});
    if (!mirrors.is_empty()) found.push_back(mirrors);
  }
  return found;
}

}  // namespace distributed

FOVEA_NAMESPACE_END
