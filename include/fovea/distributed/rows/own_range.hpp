// SPDX-License-Identifier: MIT
/// \file
/// A rank's rows, addressed by sequence position.
#pragma once

#include <vector>

#include "fovea/core/index_span.hpp"
#include "fovea/distributed/rows/row_set.hpp"
#include "fovea/distributed/rows/row_tensors.hpp"
#include "fovea/distributed/sharding.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Views of one range of this rank's rows, addressed by position in the sequence.
class OwnRange {
 public:
  /// \param range of the sequence   \param first the place of its first row among the rank's rows
  /// \param rows the number of rows of the sequence
  OwnRange(const Range& range, Index first, Index rows)
      : range_(range), first_(first), rows_(rows) {}

  /// The range.
  const Range& range() const { return range_; }

  /// The view of a tensor of the rank's rows; empty if it is.
  template <class T>
  View<T> of(const View<T>& local) const {
    if (local.size() > 0) return moved_rows(local, first_, range_.begin, rows_);
    Shape shape = local.shape();
    if (!local.empty()) shape[2] = rows_;
    return View<T>(nullptr, shape, {0, 0, 0, 0});  // rows of width 0 are rows, too
  }
  /// The same for a bias or mask, which may have one row for all queries.
  template <class T>
  View<T> of_logits(const View<T>& local) const {
    return local.rows() == 1 ? local : of(local);
  }

  /// The view of only some of the range's rows of a tensor of the rank's rows.
  template <class T>
  View<T> only(const View<T>& local, const Range& rows) const {
    return local.empty() || local.size() == 0
               ? View<T>()
               : moved_rows(local, first_ + rows.begin - range_.begin, 0, rows.end - rows.begin);
  }

 private:
  Range range_;
  Index first_;
  Index rows_;
};

/// Whether a tensor has a row of a head. Rows of width 0 count: they have an lse.
template <class T>
bool has_rows(const View<T>& x) {
  return x.batch() * x.heads() * x.rows() > 0;
}

/// The number of this rank's rows before each length: its first ones, since rows ascend.
inline std::vector<Index> own_lengths(IndexSpan lengths, const Sharding& rows) {
  std::vector<Index> counts;
  for (const Index length : lengths) {
    counts.push_back(row_count(intersection(rows.own(), {{0, length}})));
  }
  return counts;
}

/// The ranges of a rank's rows.
inline std::vector<OwnRange> own_ranges(const Sharding& rows) {
  std::vector<OwnRange> ranges;
  Index first = 0;
  for (const Range& range : rows.own()) {
    ranges.emplace_back(range, first, rows.count());
    first += range.end - range.begin;
  }
  return ranges;
}

}  // namespace distributed

FOVEA_NAMESPACE_END
