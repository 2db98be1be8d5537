// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of non-causal Performer attention.
#pragma once

#include <algorithm>

#include "fovea/attention/linear/feature_grad_segments.hpp"
#include "fovea/attention/linear/feature_totals.hpp"
#include "fovea/attention/linear/segment_sums.hpp"

FOVEA_NAMESPACE_BEGIN

/// The gradients of random features if rows see all tokens: the tokens' totals, segments of rows
/// that read them, the totals of these, and segments of tokens, as in linear attention. A key
/// head's reference is that of its total.
template <class T>
class PerformerBackward {
 public:
  /// The common part of the pass.
  using Call = PerformerBackwardCall<T>;

  /// \param call must outlive this object
  explicit PerformerBackward(Call& call) : call_(call), steps_(call) {}

  /// Bytes of memory with that many workers.
  static Index bytes(const PerformerShape& shape, Index workers) {
    const Index parts = shape.batch * (shape.query_heads * SegmentSums<T>::segments(shape.queries) +
                                       shape.key_heads * SegmentSums<T>::segments(shape.keys));
    return workers * slot_elements(shape) * Index{sizeof(T)} + FeatureTotals<T>::bytes(shape) +
           SegmentSums<T>::bytes(shape.batch * shape.query_heads, shape.queries,
                                 {1, shape.features, shape.value_width}) +
           Call::bytes(shape, parts);
  }

  /// Computes the gradients.
  void run(const ExecutorRef& executor) {
    auto&& memory = memory_of(executor);
    const PerformerShape& shape = call_.shape;
    const auto queries = [&](Index s) { return call_.sequences[s].queries; };
    const auto seen = [&](Index s) { return call_.visibility.seen(call_.sequences[s]); };
    const auto keys = [&](Index s) { return call_.sequences[s].keys; };
    const FeatureSegments<T> segments(call_.inputs, call_.features);
    FeatureTotals<T> of_keys(shape, call_.sequences, call_.visibility, segments);
    SegmentSums<T> of_rows(call_.sequences, shape.query_heads, call_.group(),
                           {1, shape.features, shape.value_width}, queries);
    const SequenceTasks rows = tasks(shape.query_heads, queries);
    const SequenceTasks tokens = tasks(shape.key_heads, keys);
    call_.reserve(rows.count() + tokens.count(), memory);
    of_keys.reserve(memory);
    of_rows.reserve(memory);
    const Index most = (std::max)({of_keys.most_tasks(), of_rows.most_tasks(), tokens.count()});
    const Index slot = slot_elements(shape);
    Workspace scratch = memory.take(worker_count(executor, most), slot * Index{sizeof(T)});
    memory.require();
    call_.begin();
    T* const all = scratch.template data<T>();
    of_keys.compute(executor, [&](Index worker) { return all + worker * slot; });
    of_rows.compute(
        executor, [&](Index s) { return seen(s) == 0 ? 0 : queries(s); },
        [&](const SequenceTask& segment, T* sums, Index worker) {
          const Index key_head = segment.head / call_.group();
          steps_.rows(segment, of_keys.total(segment.sequence, key_head),
                      of_keys.reference(segment.sequence, key_head),
                      call_.part(rows.number(segment.sequence, segment.head, segment.part)), sums,
                      all + worker * slot);
        });
    if (call_.wants_keys()) {
      for_each_task(executor, tokens.count(), [&](Index task, Index worker) {
        const SequenceTask segment = tokens[task];
        const Index s = segment.sequence;
        if (call_.group() == 0 || segment.part * kLinearSegment >= seen(s)) return;
        steps_.tokens(segment, of_rows.total(s, segment.head * call_.group()),
                      of_keys.reference(s, segment.head), call_.part(rows.count() + task),
                      all + worker * slot);
      });
    }
    call_.finish();
  }

 private:
  static Index slot_elements(const PerformerShape& shape) {
    return (std::max)(FeatureGradSegments<T>::scratch_elements(shape),
                      FeatureSegments<T>::sum_scratch(shape));
  }

  template <class Rows>
  SequenceTasks tasks(Index heads, const Rows& rows) const {
    return {call_.sequences, heads,
            [&](Index s, Index) { return SegmentSums<T>::segments(rows(s)); }};
  }

  Call& call_;
  FeatureGradSegments<T> steps_;
};

FOVEA_NAMESPACE_END
