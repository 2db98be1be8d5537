// SPDX-License-Identifier: MIT
/// \file
/// A non-causal far field across ranks: segment sums are folded on all ranks, and rows read their
/// total.
#pragma once

#include <algorithm>
#include <exception>
#include <vector>

#include "fovea/attention/linear/segment_sums.hpp"
#include "fovea/attention/linear/stream.hpp"
#include "fovea/distributed/segments/segment_keys.hpp"
#include "fovea/distributed/segments/segment_totals.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The non-causal far field of one forward pass. \tparam Field summed terms (the delta rule is
/// causal)
template <class T, class Field>
class FarFieldTotals {
 public:
  /// Allocates all memory.
  /// \param inputs of this rank's rows, checked   \param weights must outlive this object
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  FarFieldTotals(const LinearFamilyInputs<T>& inputs, const Field& far_field,
                 const FarWeights<T>& weights, bool has_near, const View<T>& out,
                 const Sharding& rows, const ExecutorRef& executor)
      : inputs_(inputs),
        far_(far_field),
        rows_(rows),
        out_(out),
        shape_(shape_of(inputs)),
        keys_(inputs.k, inputs.v, rows),
        stream_(inputs, fovea::detail::group_size(shape_.query_heads, shape_.key_heads), far_field,
                weights, has_near, out),
        slot_(kernel_elements()),
        scratch_(memory_of(executor).take(worker_count(executor, most_tasks()),
                                          slot_ * Index{sizeof(T)})),
        totals_(rows.ranks(), keys_.owners(), heads(), elements()) {}
  FarFieldTotals(const FarFieldTotals&) = delete;
  FarFieldTotals& operator=(const FarFieldTotals&) = delete;

  /// This rank's communication statistics.
  CommStats comm_stats() const { return keys_.comm_stats() + totals_.comm_stats(); }

  /// Computes the far field of this rank's rows. All messages are exchanged even if computing
  /// throws. \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) {
    std::exception_ptr error = keys_.bring([&] { sum_segments(executor); });
    totals_.fold([&](Index head) { return used_segments(head / shape_.key_heads); });
    if (!error) error = fovea::detail::caught([&] { read_rows(executor); });
    return error;
  }

 private:
  using Stream = CausalStream<T, Field>;

  /// The rows that read a total in one task.
  static constexpr Index kReadRows = 256;

  /// Key heads of all sequences.
  Index heads() const { return shape_.batch * shape_.key_heads; }
  Index read_blocks() const { return (shape_.queries + kReadRows - 1) / kReadRows; }
  Index most_tasks() const {
    return (std::max)(keys_.owners().count() * heads(),
                      shape_.batch * shape_.query_heads * read_blocks());
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

  void sum_segments(const ExecutorRef& executor) {
    const Index count = totals_.own_segments();
    LinearFamilyInputs<T> brought = inputs_;
    brought.k = keys_.k();
    brought.v = keys_.v();
    for_each_task(executor, heads() * count, [&](Index task, Index worker) {
      const Index head = task / count;
      const Index b = head / shape_.key_heads;
      const Index segment = keys_.own()[static_cast<std::size_t>(task % count)];
      if (segment >= used_segments(b)) return;
      const Sequence s = {b,         b, 0, rows_.count(), keys_.first_row(segment), rows_.count(),
                          key_end(b)};
      LinearKernels<T>{}.sum(segment_sum_args(keys_.is_brought(segment) ? brought : inputs_, far_,
                                              s, {b, head % shape_.key_heads, segment},
                                              totals_.sums(head, task % count),
                                              scratch_.template data<T>() + worker * slot_));
    });
  }

  void read_rows(const ExecutorRef& executor) {
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
  const Sharding& rows_;
  View<T> out_;
  AttentionShape shape_;
  SegmentKeys<T> keys_;
  Stream stream_;
  Index slot_;         // scratch elements per worker
  Workspace scratch_;  // [workers, slot_]
  SegmentTotals<T> totals_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
