// SPDX-License-Identifier: MIT
/// \file
/// The rank that holds a row of a sequence, and its place there.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "fovea/distributed/row_layout.hpp"
#include "fovea/distributed/rows/row_set.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Finds the rank that holds a row.
class RowOwners {
 public:
  /// The ranks of a layout.
  explicit RowOwners(const RowLayout& layout) {
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      for (const Range& range : layout.of(rank)) ranges_.emplace_back(range.begin, rank);
    }
    std::sort(ranges_.begin(), ranges_.end());
  }

  /// The rank that holds a row.
  int rank(Index row) const {
    const auto behind = std::upper_bound(ranges_.begin(), ranges_.end(), row,
                                         [](Index r, const auto& x) { return r < x.first; });
    return (behind - 1)->second;
  }

 private:
  std::vector<std::pair<Index, int>> ranges_;  // the begin of each range, and its rank
};

/// The places of rows within some ranges.
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
  /// The place of a row, or -1 if absent.
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
  /// The rows at some places, as ascending ranges.
  std::vector<Range> rows(const std::vector<Range>& places) const {
    std::vector<Range> found;
    for (std::size_t n = 0; n < ranges_.size(); ++n) {
      const Index begin = ranges_[n].begin - first_[n];
      const Index count = ranges_[n].end - ranges_[n].begin;
      for (const Range& part : intersection(places, {{first_[n], first_[n] + count}})) {
        found.push_back({begin + part.begin, begin + part.end});
      }
    }
    return found;
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
