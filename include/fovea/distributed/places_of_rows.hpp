// SPDX-License-Identifier: MIT
/// \file
/// From a row of a sequence to the rank that holds it.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/distributed/row_layout.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Where each row of a sequence is.
class PlacesOfRows {
 public:
  /// The places of the rows of a layout.
  explicit PlacesOfRows(const RowLayout& layout) {
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      Index first = 0;
      for (const Range& range : layout.of(rank)) {
        pieces_.push_back({range.begin, rank, first});
        first += range.end - range.begin;
      }
    }
    std::sort(pieces_.begin(), pieces_.end(),
              [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  }

  /// The rank that holds a row.
  int rank(Index row) const { return piece(row).rank; }
  /// The place of a row among those of its rank.
  Index place(Index row) const {
    const Piece& of = piece(row);
    return of.first + row - of.begin;
  }

 private:
  /// A range of a rank.
  struct Piece {
    Index begin;
    int rank;
    Index first;  // place of its first row among the rank's
  };

  const Piece& piece(Index row) const {
    return *(std::upper_bound(pieces_.begin(), pieces_.end(), row,
                              [](Index r, const Piece& p) { return r < p.begin; }) -
             1);
  }

  std::vector<Piece> pieces_;
};

/// The places of rows among those of some ranges.
class PlacesInRanges {
 public:
  /// \param ranges ascending, disjoint
  explicit PlacesInRanges(const std::vector<Range>& ranges) : ranges_(ranges) {
    for (const Range& range : ranges) {
      first_.push_back(count_);
      count_ += range.end - range.begin;
    }
  }

  /// The number of rows.
  Index count() const { return count_; }
  /// The place of a row, or -1 if it is not there.
  Index place(Index row) const {
    if (ranges_.size() == 1) {
      return row >= ranges_[0].begin && row < ranges_[0].end ? row - ranges_[0].begin : -1;
    }
    const auto behind = std::upper_bound(ranges_.begin(), ranges_.end(), row,
                                         [](Index r, const Range& x) { return r < x.begin; });
    if (behind == ranges_.begin()) return -1;
    const auto n = static_cast<std::size_t>(behind - ranges_.begin() - 1);
    return row < ranges_[n].end ? first_[n] + row - ranges_[n].begin : -1;
  }
  /// The row at a place.
  Index row(Index place) const {
    const auto behind = std::upper_bound(first_.begin(), first_.end(), place);
    const auto n = static_cast<std::size_t>(behind - first_.begin() - 1);
    return ranges_[n].begin + place - first_[n];
  }

 private:
  std::vector<Range> ranges_;
  std::vector<Index> first_;  // the place of the first row of each range
  Index count_ = 0;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
