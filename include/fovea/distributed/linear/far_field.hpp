// SPDX-License-Identifier: MIT
/// \file
/// The far field of a distributed forward pass: a scan if causal, otherwise totals.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <vector>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/linear/segment_sums.hpp"
#include "fovea/attention/linear/stream.hpp"
#include "fovea/distributed/linear/causal_scan.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/segments/segment_keys.hpp"
#include "fovea/distributed/segments/segment_totals.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The non-causal far field of one forward pass. \tparam Field summed terms (the delta rule is
/// causal)
template <class T, class Field>
class FarFieldTotals final : public RankPass {
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
        totals_(rows.ranks(), keys_.owners(), heads(),
                linear_sum_elements<T>(far_field.linear_shape(shape_))) {}

  /// Computes the far field of this rank's rows.
  std::exception_ptr run(const ExecutorRef& executor) override {
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
  Index key_end(Index batch) const { return inputs_.key_lengths.value_or(batch, rows_.count()); }
  Index used_segments(Index batch) const { return SegmentSums<T>::segments(key_end(batch)); }

  void sum_segments(const ExecutorRef& executor) {
    LinearFamilyInputs<T> brought = inputs_;
    brought.k = keys_.k();
    brought.v = keys_.v();
    for_each_segment(
        keys_.own(), shape_.batch, shape_.key_heads, executor, [&](Index b) { return key_end(b); },
        [&](const SequenceTask& segment, Index n, Index head, Index worker) {
          const Index b = segment.sequence;
          const Sequence s = {
              b, b, 0, rows_.count(), keys_.first_row(segment.part), rows_.count(), key_end(b)};
          LinearKernels<T>{}.sum(segment_sum_args(
              keys_.is_brought(segment.part) ? brought : inputs_, far_, s, segment,
              totals_.sums(head, n), scratch_.template data<T>() + worker * slot_));
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
      fovea::detail::fill_rows(out_, b, head, first, first + count, T{0});
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

/// Creates the far field of one forward pass, with all memory allocated. \tparam Field a
/// LinearTerms of T
/// \param inputs of this rank's rows, checked   \param weights must outlive the pass, and so must
/// the inputs
/// \param has_near whether to add to `out` instead of writing it
/// \throws std::bad_alloc, and std::runtime_error if MPI fails
template <class T, class Field>
std::unique_ptr<RankPass> far_field_pass(const LinearFamilyInputs<T>& inputs,
                                         const Field& far_field, const FarWeights<T>& weights,
                                         bool has_near, const View<T>& out, const Sharding& rows,
                                         const ExecutorRef& executor) {
  using Stream = CausalStream<T, Field>;
  if constexpr (!Field::kHasDelta) {  // the delta rule is causal
    if (!far_field.causal) {
      return std::make_unique<FarFieldTotals<T, Field>>(inputs, far_field, weights, has_near, out,
                                                        rows, executor);
    }
  }
  const LinearShape sizes = far_field.linear_shape(shape_of(inputs));
  const Index group = fovea::detail::group_size(inputs.q.heads(), inputs.k.heads());
  const Index sums = Stream::state_elements(sizes);
  return causal_scan<T>(
      Stream(inputs, group, far_field, weights, has_near, out),
      [sums](T* state, T* scratch, LinearRows<T>* of_group) ->
      typename Stream::Memory { return {state, state + sums, nullptr, 0, scratch, of_group}; },
      {inputs.q.batch(), inputs.k.heads(), group, sums + Stream::delta_elements(sizes),
       Stream::scratch_elements(sizes)},
      inputs.key_lengths, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
