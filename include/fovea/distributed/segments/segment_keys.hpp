// SPDX-License-Identifier: MIT
/// \file
/// Keys and values of whole segments on the rank that sums them: local segments are read in place,
/// and missing rows are received.
#pragma once

#include <exception>
#include <vector>

#include "fovea/core/executor.hpp"
#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/rows/own_range.hpp"
#include "fovea/distributed/rows/places_of_rows.hpp"
#include "fovea/distributed/segments/segment_totals.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The keys and values of one call.
template <class T>
class SegmentKeys {
 public:
  /// Allocates all memory, and copies this rank's rows of segments that span several ranks.
  /// \param k, v [B, Hk, own rows, D or Dv]   \param length the rows of a segment
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SegmentKeys(const View<const T>& k, const View<const T>& v, const Sharding& rows,
              Index length = kLinearSegment)
      : rows_(rows),
        places_(rows.own()),
        owners_(rows.layout(), length),
        broken_(owners_.all_broken_rows(rows.layout())),
        keys_(k.batch(), rows.count(), {{k.heads(), k.width()}, {v.heads(), v.width()}}),
        travels_(
            ExchangePlan::of(rows.layout(), rows.ranks().rank(),
                             [&](int rank) { return owners_.broken_rows(rows.layout(), rank); })),
        exchange_(rows.ranks(), keys_, {travels_}) {
    keys_.expect(travels_.with_received(intersection(broken_, rows.own()), rows.count()));
    for (const OwnRange& own : own_ranges(rows)) {
      for (const Range& range : intersection(broken_, {own.range()})) {
        keys_.put(0, own.only(k, range), {range});
        keys_.put(1, own.only(v, range), {range});
      }
    }
  }
  SegmentKeys(const SegmentKeys&) = delete;
  SegmentKeys& operator=(const SegmentKeys&) = delete;

  /// The owners of the segments.
  const SegmentOwners& owners() const { return owners_; }
  /// The segments that this rank sums.
  const std::vector<Index>& own() const { return owners_.of(rows_.ranks().rank()); }
  /// The rows of segments that span several ranks.
  const std::vector<Range>& broken() const { return broken_; }
  /// The received keys, for the whole sequence.
  View<const T> k() const { return View<const T>(keys_.tensor(0)); }
  /// The received values.
  View<const T> v() const { return View<const T>(keys_.tensor(1)); }
  /// Whether a segment is received.
  bool is_brought(Index segment) const {
    return !intersection(broken_, {owners_.rows(segment)}).empty();
  }
  /// The row of the (received or local) tensors that corresponds to row 0 of the sequence, for a
  /// segment that this rank sums.
  Index first_row(Index segment) const {
    const Index begin = owners_.rows(segment).begin;
    return is_brought(segment) ? 0 : places_.place(begin) - begin;
  }

  /// Exchanges keys and values, while f computes. \returns the exception that f threw, or null
  template <class F>
  std::exception_ptr bring(const F& f) {
    exchange_.begin();
    exchange_.begin_stage(0);
    const std::exception_ptr error = fovea::detail::caught(f);
    exchange_.end();
    return error;
  }

 private:
  const Sharding& rows_;
  PlacesInRanges places_;
  SegmentOwners owners_;
  std::vector<Range> broken_;  // rows of segments that no rank holds entirely
  RowTensors<T> keys_;         // k and v of broken segments
  ExchangePlan travels_;
  Exchange exchange_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
