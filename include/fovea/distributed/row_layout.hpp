// SPDX-License-Identifier: MIT
/// \file
/// Which rank holds which rows of a sequence.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "fovea/core/error.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The assignment of a sequence's rows to ranks, one rank each. A rank stores its rows contiguously
/// in ascending order, in all tensors alike.
class RowLayout {
 public:
  /// Every rank holds one range, in the order of ranks, as equal as possible; suits windows.
  /// \throws std::invalid_argument if rows < 0 or ranks < 1
  static RowLayout contiguous(Index rows, int ranks) { return contiguous(rows, ranks, 1); }
  /// The same, with ranges that begin at multiples of a number, such as kReductionBlock for the
  /// gradients of layers. \throws std::invalid_argument also if multiple < 1
  static RowLayout contiguous(Index rows, int ranks, Index multiple) {
    return in_turn(rows, ranks, checked(rows, ranks), multiple, [](Index piece) { return piece; });
  }

  /// The rows are cut into 2 ranks pieces, and rank r holds pieces r and 2 ranks - 1 - r, which
  /// balances causal patterns. \throws as contiguous
  static RowLayout zigzag(Index rows, int ranks) { return zigzag(rows, ranks, 1); }
  /// The same, with pieces that begin at multiples of a number. \throws as contiguous
  static RowLayout zigzag(Index rows, int ranks, Index multiple) {
    const Index count = checked(rows, ranks);
    return in_turn(rows, ranks, 2 * count, multiple,
                   [&](Index piece) { return piece < count ? piece : 2 * count - 1 - piece; });
  }

  /// Assigns blocks of rows to ranks round-robin. \throws as contiguous, or if block < 1
  static RowLayout block_cyclic(Index rows, int ranks, Index block) {
    const Index count = checked(rows, ranks);
    if (block < 1) refuse("RowLayout", "block", std::to_string(block), "at least 1");
    std::vector<std::vector<Range>> of_ranks(static_cast<std::size_t>(count));
    for (Index first = 0, n = 0; first < rows; first += block, ++n) {
      of_ranks[static_cast<std::size_t>(n % count)].push_back(
          {first, first + (std::min)(block, rows - first)});
    }
    return RowLayout(std::move(of_ranks));
  }

  /// Rank r holds the ascending ranges of_ranks[r].
  /// \throws std::invalid_argument unless they contain every row from 0 on exactly once
  explicit RowLayout(std::vector<std::vector<Range>> of_ranks) : of_ranks_(std::move(of_ranks)) {
    checked(0, static_cast<int>(of_ranks_.size()));
    std::vector<Range> all;
    for (std::vector<Range>& ranges : of_ranks_) {
      std::erase_if(ranges, [](const Range& range) { return range.is_empty(); });
      for (std::size_t n = 1; n < ranges.size(); ++n) {
        if (ranges[n].begin >= ranges[n - 1].end) continue;
        refuse("RowLayout", text_of(ranges[n - 1]) + " is followed by " + text_of(ranges[n]),
               "the ranges of a rank must ascend, without overlap");
      }
      all.insert(all.end(), ranges.begin(), ranges.end());
      join(ranges);
    }
    std::sort(all.begin(), all.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    for (const Range& range : all) {
      if (range.begin != rows_) {
        refuse("RowLayout", "the first row of a range", std::to_string(range.begin),
               std::to_string(rows_) + ": every row belongs to exactly one rank");
      }
      rows_ = range.end;
    }
  }

  /// The number of rows of the sequence.
  Index rows() const { return rows_; }
  /// The number of ranks.
  int ranks() const { return static_cast<int>(of_ranks_.size()); }
  /// The rows of a rank, as ascending ranges with gaps between them.
  const std::vector<Range>& of(int rank) const { return of_ranks_[static_cast<std::size_t>(rank)]; }
  /// The number of rows of a rank.
  Index count(int rank) const {
    Index rows = 0;
    for (const Range& range : of(rank)) rows += range.end - range.begin;
    return rows;
  }

  /// The rows of every rank, as text.
  std::string text() const {
    std::string text = std::to_string(rows()).append(" rows:");
    for (int rank = 0; rank < ranks(); ++rank) {
      text += rank == 0 ? " " : " | ";
      for (const Range& range : of(rank)) text += text_of(range);
    }
    return text;
  }

  /// Whether both have the same rows on the same ranks.
  friend bool operator==(const RowLayout&, const RowLayout&) = default;

 private:
  static Index checked(Index rows, int ranks) {
    if (rows < 0) refuse("RowLayout", "rows", std::to_string(rows), "at least 0");
    if (ranks < 1) refuse("RowLayout", "ranks", std::to_string(ranks), "at least 1");
    return ranks;
  }

  static std::string text_of(const Range& range) {
    std::string text(1, '[');
    text.append(std::to_string(range.begin)).append(", ");
    return text.append(std::to_string(range.end)).append(")");
  }

  /// Pieces as equal as possible; rank_of(piece) holds each.
  template <class RankOf>
  static RowLayout in_turn(Index rows, int ranks, Index pieces, Index multiple,
                           const RankOf& rank_of) {
    if (multiple < 1) refuse("RowLayout", "multiple", std::to_string(multiple), "at least 1");
    std::vector<std::vector<Range>> of_ranks(static_cast<std::size_t>(ranks));
    const Index blocks = rows / multiple + (rows % multiple == 0 ? 0 : 1);
    // Avoids products that could overflow.
    const auto begin = [&](Index n) {
      const Index block = blocks / pieces * n + (std::min)(n, blocks % pieces);
      return block > rows / multiple ? rows : block * multiple;
    };
    for (Index n = 0; n < pieces; ++n) {
      of_ranks[static_cast<std::size_t>(rank_of(n))].push_back({begin(n), begin(n + 1)});
    }
    return RowLayout(std::move(of_ranks));
  }

  /// Joins adjacent ranges.
  static void join(std::vector<Range>& ranges) {
    std::vector<Range> joined;
    for (const Range& range : ranges) {
      if (!joined.empty() && joined.back().end == range.begin) {
        joined.back().end = range.end;
      } else {
        joined.push_back(range);
      }
    }
    ranges = std::move(joined);
  }

  std::vector<std::vector<Range>> of_ranks_;
  Index rows_ = 0;
};

/// Which rank holds which blocks of a sequence (Sinkhorn's sorting logits): those whose first rows
/// it holds. \param block rows of a block, at least 1
inline RowLayout blocks_of(const RowLayout& rows, Index block) {
  std::vector<std::vector<Range>> blocks(static_cast<std::size_t>(rows.ranks()));
  for (int rank = 0; rank < rows.ranks(); ++rank) {
    for (const Range& range : rows.of(rank)) {
      blocks[static_cast<std::size_t>(rank)].push_back(
          {(range.begin + block - 1) / block, (range.end + block - 1) / block});
    }
  }
  return RowLayout(std::move(blocks));
}

}  // namespace distributed

FOVEA_NAMESPACE_END
