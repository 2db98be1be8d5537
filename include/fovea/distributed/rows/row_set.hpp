// SPDX-License-Identifier: MIT
/// \file
/// A set of rows of a sequence, built from ranges and row blocks in any order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "fovea/patterns/partition.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// A set of rows in [0, rows). Memory: a bit for each row.
class RowSet {
 public:
  /// The empty set, for a sequence of `rows` rows.
  explicit RowSet(Index rows) : words_(static_cast<std::size_t>((rows + kBits - 1) / kBits)) {}

  /// Adds the rows of a row block, which are in [0, rows).
  void add(const RowBlock& row_block) {
    if (row_block.step == 1) return add(row_block.span());
    for (Index n = 0; n < row_block.count; ++n) add(row_block.first + row_block.step * n);
  }
  /// Adds a row in [0, rows).
  void add(Index row) { word(row) |= std::uint64_t{1} << (row % kBits); }

  /// Adds a range of rows in [0, rows). Ranges that overlap the one before cost O(1).
  void add(const Range& range) {
    if (range.is_empty()) return;
    if (!range_.is_empty() && range.begin <= range_.end && range_.begin <= range.end) {
      range_ = {(std::min)(range.begin, range_.begin), (std::max)(range.end, range_.end)};
      return;
    }
    write();
    range_ = range;
  }

  /// The rows as ascending disjoint ranges, with gaps between them.
  std::vector<Range> ranges() {
    write();
    range_ = {};
    std::vector<Range> found;
    const auto rows = static_cast<Index>(words_.size()) * kBits;
    for (Index row = next(0, rows, true); row < rows;) {
      const Index end = next(row, rows, false);
      found.push_back({row, end});
      row = next(end, rows, true);
    }
    return found;
  }

 private:
  static constexpr Index kBits = 64;

  std::uint64_t& word(Index row) { return words_[static_cast<std::size_t>(row / kBits)]; }

  /// Writes the last range added.
  void write() {
    for (Index row = range_.begin; row < range_.end;) {
      const Index end = (std::min)(range_.end, (row / kBits + 1) * kBits);
      const std::uint64_t ones =
          end - row == kBits ? ~std::uint64_t{0} : (std::uint64_t{1} << (end - row)) - 1;
      word(row) |= ones << (row % kBits);
      row = end;
    }
  }

  /// The first row from `row` on that is (or is not) in the set.
  Index next(Index row, Index rows, bool is_in) {
    while (row < rows) {
      const std::uint64_t bits = (is_in ? word(row) : ~word(row)) >> (row % kBits);
      if (bits != 0) return row + std::countr_zero(bits);
      row = (row / kBits + 1) * kBits;
    }
    return rows;
  }

  std::vector<std::uint64_t> words_;
  Range range_;  // added, and not yet written
};

/// The intersection of two lists of ascending disjoint ranges.
inline std::vector<Range> intersection(const std::vector<Range>& a, const std::vector<Range>& b) {
  std::vector<Range> both;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Range part = a[i].within(b[j]);
    if (!part.is_empty()) both.push_back(part);
    (a[i].end < b[j].end ? i : j) += 1;
  }
  return both;
}

/// The difference of two lists of ascending disjoint ranges.
inline std::vector<Range> without(const std::vector<Range>& rows,
                                  const std::vector<Range>& others) {
  std::vector<Range> left;
  for (const Range& range : rows) {
    Index begin = range.begin;
    for (const Range& other : intersection({range}, others)) {
      if (begin < other.begin) left.push_back({begin, other.begin});
      begin = other.end;
    }
    if (begin < range.end) left.push_back({begin, range.end});
  }
  return left;
}

/// The same ranges, joined across small gaps, adding few rows (at most a twelfth). Few ranges are
/// sent faster.
/// \param ranges ascending, disjoint
inline std::vector<Range> with_small_gaps(const std::vector<Range>& ranges) {
  constexpr Index most_gap = 8;
  Index rows = 0;
  Index added[most_gap + 1] = {};  // by joining across gaps of that many rows
  for (std::size_t n = 0; n < ranges.size(); ++n) {
    rows += ranges[n].end - ranges[n].begin;
    const Index gap = n == 0 ? most_gap + 1 : ranges[n].begin - ranges[n - 1].end;
    if (gap <= most_gap) added[gap] += gap;
  }
  Index limit = 0;
  for (Index all = added[0]; limit < most_gap && all + added[limit + 1] <= rows / 12;) {
    all += added[++limit];
  }
  std::vector<Range> joined;
  for (const Range& range : ranges) {
    if (!joined.empty() && range.begin - joined.back().end <= limit) {
      joined.back().end = range.end;
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

/// The number of rows in disjoint ranges.
inline Index row_count(const std::vector<Range>& ranges) {
  Index count = 0;
  for (const Range& range : ranges) count += range.end - range.begin;
  return count;
}

}  // namespace distributed

FOVEA_NAMESPACE_END
