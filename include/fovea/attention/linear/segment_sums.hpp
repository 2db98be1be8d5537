// SPDX-License-Identifier: MIT
/// \file
/// Sums over segments of rows, and their totals, which all rows of a non-causal far field read.
#pragma once

#include <algorithm>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/call/sequences.hpp"
#include "fovea/attention/linear/terms.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/linear/table.hpp"

FOVEA_NAMESPACE_BEGIN

/// The arguments of linear_sum for one segment of the tokens of a key head.
/// \param segment a segment of `sequence`
/// \param sums [linear_sum_elements], written
/// \param scratch linear_sum_scratch(...) elements
template <class U, class Field, class T = Compute<U>>
LinearSumArgs<T, kStorage<U>> segment_sum_args(const LinearFamilyInputs<U>& inputs,
                                               const Field& far_field, const Sequence& sequence,
                                               const SequenceTask& segment, T* sums, T* scratch) {
  const Index first = segment.part * kLinearSegment;
  const Index row = sequence.first_key + first;
  LinearSumArgs<T, kStorage<U>> args;
  args.k = detail::head_stored(inputs.k, sequence.batch, segment.head, row);
  args.v = detail::head_stored(inputs.v, sequence.batch, segment.head, row);
  args.width = far_field.features(inputs.k.width());
  args.value_width = inputs.v.width();
  args.maps = far_field.linear_maps(inputs.k.width());
  args.tokens = (std::min)(kLinearSegment, sequence.key_end - first);
  args.sums = sums;
  args.scratch = scratch;
  return args;
}

/// The default join, for sums of the same scale: does nothing.
struct NoJoin {
  /// Does nothing.
  template <class T>
  void operator()(T* /*sums*/, Index /*segments*/, Index /*elements*/) const {}
};

/// The sums of the segments of kLinearSegment rows, for each head of each sequence, and their
/// totals. A total is taken over `group` neighbouring heads, in the order of heads and segments.
/// \tparam T the type of the arithmetic
template <class T>
class SegmentSums {
 public:
  /// \param rows called as rows(s), returns the number of rows of sequence s
  /// \param heads the number of heads, a multiple of group
  /// \param beside extra elements after a segment's sums, which are folded with them
  template <class U, class Rows>
  SegmentSums(const Sequences<U>& sequences, Index heads, Index group, const LinearShape& shape,
              const Rows& rows, Index beside = 0)
      : tasks_(sequences, heads, [&](Index s, Index) { return segments(rows(s)); }),
        group_(group),
        groups_(group == 0 ? 0 : sequences.count() * heads / group),
        heads_(heads),
        elements_(padded_row<T>(linear_sum_elements<T>(shape) + beside)) {}

  /// The number of segments of that many rows.
  static Index segments(Index rows) { return (rows + kLinearSegment - 1) / kLinearSegment; }

  /// The largest number of tasks in a step of `compute`.
  Index most_tasks() const { return (std::max)(tasks_.count(), groups_); }

  /// Allocates the memory for the sums.
  /// \param memory the call's (memory_of)
  /// \throws std::bad_alloc
  template <class Memory>
  void reserve(Memory&& memory) {
    sums_ = memory.take(tasks_.count(), elements_ * Index{sizeof(T)});
  }

  /// Computes all sums and totals.
  /// \param used called as used(s), returns the number of rows of sequence s that count; later
  /// segments are skipped
  /// \param sum called as sum(task, sums, worker), writes the sums of segment `task.part`
  /// \param join called as join(sums, segments, elements) before a group's sums are folded;
  /// `elements` is the distance between segments
  template <class Used, class Sum, class Join = NoJoin>
  void compute(const ExecutorRef& executor, const Used& used, const Sum& sum,
               const Join& join = {}) {
    for_each_task(executor, tasks_.count(), [&](Index task, Index worker) {
      const SequenceTask segment = tasks_[task];
      if (segment.part < segments(used(segment.sequence))) sum(segment, at(task), worker);
    });
    const Index groups = heads_ / (std::max)(Index{1}, group_);
    for_each_task(executor, groups_, [&](Index task, Index) {
      const Index sequence = task / groups;
      const Index count = segments(used(sequence));
      if (count == 0) return;
      T* const first = at(tasks_.number(sequence, task % groups * group_, 0));
      join(first, group_ * count, elements_);
      LinearKernels<T>{}.fold({first, group_ * count, elements_, first});
    });
  }

  /// A head group's total.
  /// \param head the first head of the group
  /// \pre the sequence has rows that count
  const T* total(Index sequence, Index head) const {
    return sums_.template data<T>() + tasks_.number(sequence, head, 0) * elements_;
  }

 private:
  T* at(Index task) { return sums_.template data<T>() + task * elements_; }

  SequenceTasks tasks_;  // all segments of all heads
  Index group_;
  Index groups_;  // groups of all sequences together
  Index heads_;
  Index elements_;
  Workspace sums_;
};

FOVEA_NAMESPACE_END
