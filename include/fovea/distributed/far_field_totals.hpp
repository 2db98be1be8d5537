// SPDX-License-Identifier: MIT
/// \file
/// A far field over ranks that is not causal: sums of segments, folded on all ranks, and rows that
/// read their total.
#pragma once

#include <algorithm>
#include <exception>
#include <vector>

#include "fovea/attention/linear/segment_sums.hpp"
#include "fovea/attention/linear/stream.hpp"
#include "fovea/distributed/exchange.hpp"
#include "fovea/distributed/own_range.hpp"
#include "fovea/distributed/segment_totals.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The far field of one forward pass that is not causal. \tparam Field terms that are summed: the
/// delta rule is causal
template <class T, class Field>
class FarFieldTotals {
 public:
  /// Takes all memory.
  /// \param inputs of this rank's rows, checked   \param weights must outlive this object
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class E>
  FarFieldTotals(const LinearFamilyInputs<T>& inputs, const Field& far,
                 const FarWeights<T>& weights, bool has_near, const View<T>& out, const Rows& rows,
                 E&& executor)
      : inputs_(inputs),
        far_(far),
        rows_(rows),
        out_(out),
        shape_(shape_of(inputs)),
        owners_(rows.layout()),
        broken_(owners_.all_broken_rows(rows.layout())),
        stream_(inputs, fovea::detail::group_size(shape_.query_heads, shape_.key_heads), far,
                weights, has_near, out),
        slot_(kernel_elements()),
        scratch_(memory_of(executor).take(worker_count(executor, most_tasks()),
                                          slot_ * Index{sizeof(T)})),
        keys_(shape_.batch, rows.count(),
              {{shape_.key_heads, shape_.width}, {shape_.key_heads, shape_.value_width}}),
        exchange_(
            rows.ranks(), keys_,
            {ExchangePlan::of(rows.layout(), rows.ranks().rank(),
                              [&](int rank) { return owners_.broken_rows(rows.layout(), rank); })}),
        totals_(rows.ranks(), owners_, heads(), elements()) {
    for (const OwnRange& own : own_ranges(rows)) {
      for (const Range& range : intersection(broken_, {own.range()})) {
        keys_.put(0, only_rows(own.of(inputs.k), range), {range});
        keys_.put(1, only_rows(own.of(inputs.v), range), {range});
      }
    }
  }
  FarFieldTotals(const FarFieldTotals&) = delete;
  FarFieldTotals& operator=(const FarFieldTotals&) = delete;

  /// The messages of this rank.
  Traffic traffic() const { return exchange_.traffic() + totals_.traffic(); }

  /// Computes the far field of this rank's rows. All messages are exchanged even if computing
  /// throws. \returns what computing has thrown, or null
  template <class E>
  std::exception_ptr run(E&& executor) {
    exchange_.begin();
    exchange_.begin_stage(0);
    std::exception_ptr error = fovea::detail::caught([&] { sum_segments(executor); });
    exchange_.end();
    totals_.fold([&](Index head) { return used_segments(head / shape_.key_heads); });
    if (!error) error = fovea::detail::caught([&] { read_rows(executor); });
    return error;
  }

 private:
  using Stream = CausalStream<T, Field>;

  /// Rows that read a total together.
  static constexpr Index kReadRows = 256;

  /// Key heads of all sequences.
  Index heads() const { return shape_.batch * shape_.key_heads; }
  Index read_blocks() const { return (shape_.queries + kReadRows - 1) / kReadRows; }
  Index most_tasks() const {
    return (std::max)(owners_.count() * heads(), shape_.batch * shape_.query_heads * read_blocks());
  }
  Index kernel_elements() const {
    const LinearShape sizes = far_.linear_shape(shape_);
    return padded_row<T>((std::max)(linear_sum_scratch<T>(sizes), linear_read_scratch<T>(sizes)));
  }
  /// Elements of the sums of a segment.
  Index elements() const {
    constexpr Index unit = SegmentTotals<T>::kUnit;
    return (linear_sum_elements<T>(far_.linear_shape(shape_)) + unit - 1) / unit * unit;
  }
  Index key_end(Index batch) const {
    return inputs_.key_lengths.empty() ? rows_.count()
                                       : inputs_.key_lengths[static_cast<std::size_t>(batch)];
  }
  Index used_segments(Index batch) const { return SegmentSums<T>::segments(key_end(batch)); }

  /// Some rows of a tensor.
  static View<const T> only_rows(const View<const T>& x, const Range& rows) {
    if (x.is_none()) return x;
    Shape shape = x.shape();
    shape[2] = rows.end - rows.begin;
    return View<const T>(x.data() + rows.begin * x.strides()[2], shape, x.strides());
  }

  template <class E>
  void sum_segments(E&& executor) {
    const std::vector<Index>& own = owners_.of(rows_.ranks().rank());
    const Index count = totals_.own_segments();
    LinearFamilyInputs<T> received = inputs_;
    received.k = keys_.tensor(0);
    received.v = keys_.tensor(1);
    for_each_task(executor, heads() * count, [&](Index task, Index worker) {
      const Index head = task / count;
      const Index b = head / shape_.key_heads;
      const Index segment = own[static_cast<std::size_t>(task % count)];
      if (segment >= used_segments(b)) return;
      // A segment that this rank holds is read where it is.
      const Range rows = owners_.rows(segment);
      const bool is_broken = !intersection(broken_, {rows}).empty();
      const Index moved = is_broken ? 0 : place_of(rows.begin) - rows.begin;
      const Sequence s = {b, b, 0, rows_.count(), moved, rows_.count(), key_end(b)};
      LinearKernels<T>{}.sum(segment_sum_args(
          is_broken ? received : inputs_, far_, s, {b, head % shape_.key_heads, segment},
          totals_.sums(head, task % count), scratch_.template data<T>() + worker * slot_));
    });
  }

  /// The place of a row among those of this rank, which holds it.
  Index place_of(Index row) const {
    Index place = 0;
    for (const Range& range : rows_.own()) {
      if (row < range.end) return place + row - range.begin;
      place += range.end - range.begin;
    }
    return place;
  }

  template <class E>
  void read_rows(E&& executor) {
    for_each_task(executor, shape_.batch * shape_.query_heads * read_blocks(),
                  [&](Index task, Index worker) {
                    const Index head = task / read_blocks() % shape_.query_heads;
                    const Index b = task / read_blocks() / shape_.query_heads;
                    read_block(b, head, task % read_blocks() * kReadRows, worker);
                  });
  }

  void read_block(Index b, Index head, Index first, Index worker) {
    const Index count = (std::min)(kReadRows, shape_.queries - first);
    if (key_end(b) == 0) {
      for (Index n = first; n < first + count; ++n) {
        for (Index c = 0; c < shape_.value_width; ++c) out_(b, head, n, c) = 0;
      }
      return;
    }
    const Index key_head = head / stream_.group();
    typename Stream::Memory at;
    at.kernel = scratch_.template data<T>() + worker * slot_;
    LinearReadArgs<T> args;
    args.rows = stream_.term_rows(b, key_head, head % stream_.group(), first, true, true, at);
    args.row_count = count;
    args.width = far_.features(shape_.width);
    args.value_width = shape_.value_width;
    args.maps = far_.linear_maps(shape_.width);
    args.total = totals_.total(b * shape_.key_heads + key_head);
    args.scratch = at.kernel;
    LinearKernels<T>{}.read(args);
  }

  LinearFamilyInputs<T> inputs_;
  Field far_;
  const Rows& rows_;
  View<T> out_;
  AttentionShape shape_;
  SegmentOwners owners_;
  std::vector<Range> broken_;  // rows of segments that no rank holds all
  Stream stream_;
  Index slot_;          // elements of scratch of a worker
  Workspace scratch_;   // [workers, slot_]
  RowTensors<T> keys_;  // k and v of broken segments
  Exchange exchange_;
  SegmentTotals<T> totals_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
