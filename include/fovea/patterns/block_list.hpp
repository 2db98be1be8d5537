// SPDX-License-Identifier: MIT
/// \file
/// A block-sparse pattern: each query block has a list of the key blocks that it sees.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fovea/core/error.hpp"
#include "fovea/patterns/interval_plan.hpp"

FOVEA_NAMESPACE_BEGIN

/// The key blocks that each query block sees, in compressed sparse row format (CSR): query block r
/// sees the key blocks columns[offsets[r]] to columns[offsets[r + 1] - 1].
struct BlockRows {
  /// [query blocks + 1] where each row of `columns` begins, ascending from 0
  std::vector<Index> offsets;
  std::vector<Index> columns;  ///< the key blocks of all rows, ascending in each row
};

/// Checks a BlockList's lists.
/// \throws std::invalid_argument if block < 1, if the offsets do not ascend from 0 to the end of
/// columns, if a column is not in [0, key_blocks) or too large for positions, or if a row does not
/// ascend
inline void check_block_rows(const char* op, Index block, Index key_blocks, const BlockRows& rows) {
  const auto& [offsets, columns] = rows;
  const Index size = static_cast<Index>(columns.size());
  if (block < 1) refuse(op, "block", std::to_string(block), "at least 1");
  const Index end = (std::min)(key_blocks, (std::max)(kFarPosition / block, Index{1}));
  if (offsets.empty()) refuse_missing(op, "offsets", "0, and the end of each row of columns");
  if (offsets.front() != 0) refuse(op, "offsets[0]", std::to_string(offsets.front()), "0");
  for (std::size_t r = 0; r + 1 < offsets.size(); ++r) {
    if (offsets[r + 1] < offsets[r] || offsets[r + 1] > size) {
      refuse(op, "offsets[" + std::to_string(r + 1) + "]", std::to_string(offsets[r + 1]),
             range_text(offsets[r], size) + ": offsets ascend, up to the number of columns");
    }
    for (Index n = offsets[r]; n < offsets[r + 1]; ++n) {
      const Index column = columns[static_cast<std::size_t>(n)];
      const Index least = n == offsets[r] ? 0 : columns[static_cast<std::size_t>(n - 1)] + 1;
      if (column < least || column >= end) {
        refuse(op, "columns[" + std::to_string(n) + "], of row " + std::to_string(r) + ",",
               std::to_string(column),
               column < 0 || column >= end
                   ? range_text<Index>(0, end - 1) + ", the blocks of keys"
                   : "more than " + std::to_string(least - 1) + ": the columns of a row ascend");
      }
    }
  }
  if (offsets.back() != size) {
    refuse(op, "the last of offsets", std::to_string(offsets.back()),
           std::to_string(size) + ", the number of columns");
  }
}

/// Position i sees key j if key block floor(j / block) is listed for query block floor(i / block)
/// and, if causal, j <= i. Positions without a row see nothing. Cheap to copy.
class BlockList {
 public:
  /// \param block positions in a block, the same for queries and keys
  /// \param key_blocks number of key blocks; listed blocks must be below it
  /// \param rows the lists
  /// \param causal whether a position sees keys up to itself only
  /// \param op the operator's name for error messages
  /// \throws std::invalid_argument as check_block_rows
  BlockList(Index block, Index key_blocks, BlockRows rows, bool causal = false,
            const char* op = "BlockList")
      : block_(block), causal_(causal) {
    check_block_rows(op, block, key_blocks, rows);
    lists_ = std::make_shared<const Lists>(std::move(rows), block);
    intervals_ = lists_->most;
  }

  /// Whether the query at position i sees key j.
  bool allows(Index i, Index j) const {
    const auto& [offsets, columns] = lists_->rows;
    const Index row = floor_div(i, block_);
    if (row < 0 || row >= row_count() || (causal_ && j > i)) return false;
    const std::size_t r = static_cast<std::size_t>(row);
    return std::binary_search(columns.begin() + offsets[r], columns.begin() + offsets[r + 1],
                              floor_div(j, block_));
  }

  /// The same pattern for a sequence of this many keys. It needs fewer intervals, because two
  /// intervals of a row are at least one key block apart.
  BlockList up_to(Index keys) const {
    BlockList cut = *this;
    const Index key_blocks = ceil_div(keys, block_);
    cut.intervals_ = std::clamp((key_blocks + 1) / 2, Index{1}, lists_->most);
    return cut;
  }
  /// The number of intervals: the most intervals that a row can have.
  Index interval_count() const { return intervals_; }

  /// Writes the intervals of keys of position i, ascending; unused intervals become empty.
  void keys_of(Index i, std::span<Range> intervals) const {
    intervals = intervals.first(static_cast<std::size_t>(interval_count()));
    std::ranges::fill(intervals, Range{});
    const Index row = floor_div(i, block_);
    if (row < 0 || row >= row_count()) return;
    const std::size_t begin = lists_->begins[static_cast<std::size_t>(row)];
    const std::size_t end = lists_->begins[static_cast<std::size_t>(row) + 1];
    const std::size_t count = (std::min)(end - begin, intervals.size());
    for (std::size_t n = 0; n < count; ++n) intervals[n] = lists_->intervals[begin + n];
  }

  /// Whether the intervals still need the causal cut, to keys up to the query.
  bool causal_cut() const { return causal_; }
  /// The end of i's block: up to there positions have the same intervals. After the listed blocks
  /// they have none.
  Index same_until(Index i) const {
    const Index row = floor_div(i, block_);
    return row < row_count() ? (row + 1) * block_ : kUnboundedKeys;
  }
  /// The positions in a block: at multiples of it the intervals change.
  Index row_block() const { return block_; }

  /// A range that contains every position that sees one of the keys.
  Range seen_from(const Range& keys) const {
    const bool are_all = row_count() > kFarPosition / block_;
    return Range{causal_ ? keys.begin : 0, are_all ? kFarPosition : row_count() * block_};
  }

  /// Whether a position of `rows` may see a key of `keys`. The cost is O(blocks in
  /// rows * log(blocks in a row)).
  bool meets(const Range& rows, const Range& keys) const {
    if (rows.is_empty() || keys.is_empty() || (causal_ && keys.begin >= rows.end)) return false;
    const Index end = (std::min)(row_count(), floor_div(rows.end - 1, block_) + 1);
    for (Index r = (std::max<Index>)(0, floor_div(rows.begin, block_)); r < end; ++r) {
      const auto begin = lists_->intervals.begin();
      const auto last = begin + static_cast<Index>(lists_->begins[static_cast<std::size_t>(r) + 1]);
      const auto found =
          std::upper_bound(begin + static_cast<Index>(lists_->begins[static_cast<std::size_t>(r)]),
                           last, keys.begin, [](Index k, const Range& x) { return k < x.end; });
      if (found != last && found->begin < keys.end) return true;
    }
    return false;
  }

  /// The plan for one sequence.
  IntervalPlan<BlockList> plan(const SequenceShape& shape) const { return {*this, shape}; }

 private:
  /// The rows as given, and as intervals of keys with adjacent blocks merged.
  struct Lists {
    Lists(BlockRows given, Index block) : rows(std::move(given)), begins{0} {
      for (std::size_t r = 0; r + 1 < rows.offsets.size(); ++r) {
        for (Index n = rows.offsets[r]; n < rows.offsets[r + 1]; ++n) {
          const Index key = rows.columns[static_cast<std::size_t>(n)] * block;
          if (intervals.size() > begins.back() && intervals.back().end == key) {
            intervals.back().end += block;
          } else {
            intervals.push_back({key, key + block});
          }
        }
        most = (std::max)(most, static_cast<Index>(intervals.size() - begins.back()));
        begins.push_back(intervals.size());
      }
    }

    BlockRows rows;
    std::vector<Range> intervals;
    std::vector<std::size_t> begins;  // where each row begins in the intervals
    Index most = 1;                   // the most intervals of a row
  };

  Index row_count() const { return static_cast<Index>(lists_->rows.offsets.size()) - 1; }

  Index block_;
  bool causal_;
  std::shared_ptr<const Lists> lists_;
  Index intervals_ = 1;
};

static_assert(Pattern<BlockList>);

FOVEA_NAMESPACE_END
