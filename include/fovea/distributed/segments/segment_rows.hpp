// SPDX-License-Identifier: MIT
/// \file
/// Rows of whole segments on the rank that sums them: missing rows are sent to it, and gradients
/// are sent back.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/segments/segment_totals.hpp"
#include "fovea/distributed/sharding.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Specifies that ranks read only the rows of their segments.
struct OwnSegmentsOnly {
  /// No rows.
  std::vector<Range> operator()(const std::vector<Range>& /*summed*/) const { return {}; }
};

/// The tensors of a backward pass over segments of rows. If ranges begin and end at segment
/// boundaries, nothing is sent.
template <class T>
class SegmentRows {
 public:
  /// Heads and widths of tensors.
  using Sizes = std::vector<std::pair<Index, Index>>;

  /// Allocates all memory.
  /// \param read of tensors that are read   \param made of gradients, initially zero
  /// \param is_given whether gradients start from values passed by their ranks, instead
  /// \param also called as also(rows), returns the further rows read by a rank that sums these
  /// ascending ranges   \param length the rows of a segment
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class Also>
  SegmentRows(const Sharding& rows, Index batch, const Sizes& read, const Sizes& made,
              bool is_given, const Also& also, Index length = kLinearSegment)
      : rows_(rows),
        owners_(rows.layout(), length),
        layout_(owners_.layout()),
        read_(batch, rows.count(), read),
        made_(batch, rows.count(), made),
        in_(rows.ranks(), read_,
            {ExchangePlan::of(rows.layout(), rank(), [&](int r) { return rows_read(r, also); })}),
        out_(rows.ranks(), made_,
             {ExchangePlan::of(layout_, rank(), [&](int r) { return rows.layout().of(r); })}) {
    if (is_given) {
      given_.emplace(rows.ranks(), made_,
                     std::vector<ExchangePlan>{ExchangePlan::of(
                         rows.layout(), rank(), [&](int r) { return layout_.of(r); })});
    }
    read_.expect(rows.own());
    made_.expect(layout_.of(rank()));
  }
  SegmentRows(const SegmentRows&) = delete;
  SegmentRows& operator=(const SegmentRows&) = delete;

  /// The owners of the segments.
  const SegmentOwners& owners() const { return owners_; }
  /// The segments that this rank sums.
  const std::vector<Index>& own() const { return owners_.of(rank()); }
  /// The layout of all ranks' segments.
  const RowLayout& layout() const { return layout_; }
  /// Input tensor t, addressed by sequence position: the rows of this rank's segments, and the
  /// shared ones, may be read.
  View<T> read(std::size_t t) const { return read_.tensor(t); }
  /// Gradient t: the rows of this rank's segments may be written.
  View<T> made(std::size_t t) const { return made_.tensor(t); }

  /// Copies this rank's rows to an input tensor.
  void put(std::size_t t, const View<const T>& own) const { read_.put(t, own, rows_.own()); }
  /// Copies this rank's initial gradient, unless empty.
  void give(std::size_t t, const View<T>& own) const {
    if (!own.empty()) made_.put(t, View<const T>(own), rows_.own());
  }
  /// Writes this rank's rows of a gradient, unless empty.
  void take(std::size_t t, const View<T>& own) const {
    if (!own.empty()) made_.get(t, own, rows_.own());
  }

  /// Sends rows to the ranks that sum them.
  void bring() {
    in_.run();
    if (given_) given_->run();
  }
  /// Sends gradients back.
  void bring_back() { out_.run(); }

 private:
  int rank() const { return rows_.ranks().rank(); }

  template <class Also>
  std::vector<Range> rows_read(int r, const Also& also) const {
    RowSet all(rows_.count());
    const std::vector<Range>& summed = layout_.of(r);
    for (const Range& range : summed) all.add(range);
    for (const Range& range : also(summed)) all.add(range);
    return all.ranges();
  }

  const Sharding& rows_;
  SegmentOwners owners_;
  RowLayout layout_;
  RowTensors<T> read_;
  RowTensors<T> made_;
  Exchange in_;
  Exchange out_;
  std::optional<Exchange> given_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
