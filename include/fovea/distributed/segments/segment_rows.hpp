// SPDX-License-Identifier: MIT
/// \file
/// Rows of whole segments on the rank that sums them: what it does not hold is brought to it, and
/// gradients are brought back.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/rows.hpp"
#include "fovea/distributed/segments/segment_totals.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Says that ranks read the rows of their segments alone.
struct ReadNoOthers {
  /// No rows.
  std::vector<Range> operator()(const std::vector<Range>& /*summed*/) const { return {}; }
};

/// The tensors of a backward pass over segments of rows. Where the ranges of ranks begin and end
/// with segments, nothing travels.
template <class T>
class SegmentRows {
 public:
  /// Heads and widths of tensors.
  using Sizes = std::vector<std::pair<Index, Index>>;

  /// Takes all memory.
  /// \param read of tensors that are read   \param made of gradients, which begin as zeros
  /// \param is_given whether gradients begin as what their ranks give, instead
  /// \param also called as also(rows), gives what a rank reads, too, that sums these ascending
  /// ranges   \param length the rows of a segment
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class Also>
  SegmentRows(const Rows& rows, Index batch, const Sizes& read, const Sizes& made, bool is_given,
              const Also& also, Index length = kLinearSegment)
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

  /// Who sums which segments.
  const SegmentOwners& owners() const { return owners_; }
  /// The segments that this rank sums.
  const std::vector<Index>& own() const { return owners_.of(rank()); }
  /// The rows of all ranks' segments.
  const RowLayout& layout() const { return layout_; }
  /// Tensor t of those that are read, of the whole sequence: the rows of this rank's segments, and
  /// the shared ones, may be read.
  View<T> read(std::size_t t) const { return read_.tensor(t); }
  /// Gradient t: the rows of this rank's segments may be written.
  View<T> made(std::size_t t) const { return made_.tensor(t); }
  /// The messages of this rank.
  Traffic traffic() const {
    const Traffic all = in_.traffic() + out_.traffic();
    return given_ ? all + given_->traffic() : all;
  }

  /// Puts this rank's rows of a tensor that is read.
  void put(std::size_t t, const View<const T>& own) const { read_.put(t, own, rows_.own()); }
  /// Puts what this rank gives of a gradient; of none, nothing.
  void give(std::size_t t, const View<T>& own) const {
    if (!own.is_none()) made_.put(t, View<const T>(own), rows_.own());
  }
  /// Writes this rank's rows of a gradient, unless they are none.
  void take(std::size_t t, const View<T>& own) const {
    if (!own.is_none()) made_.get(t, own, rows_.own());
  }

  /// Brings rows to who sums them.
  void bring() {
    in_.run();
    if (given_) given_->run();
  }
  /// Brings gradients back.
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

  const Rows& rows_;
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
