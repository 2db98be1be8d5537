// SPDX-License-Identifier: MIT
/// \file
/// The backward passes of Performer attention, not causal and causal.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "fovea/attention/linear/feature_grad_segments.hpp"
#include "fovea/attention/linear/feature_grad_stream.hpp"
#include "fovea/attention/linear/feature_totals.hpp"
#include "fovea/attention/linear/segment_sums.hpp"

FOVEA_NAMESPACE_BEGIN

/// The gradients of random features: first the rows of all query heads, and then the tokens of all
/// key heads (FeatureGradStream).
template <class T>
class PerformerCausalBackward {
 public:
  /// The common part of the pass.
  using Call = PerformerBackwardCall<T>;

  /// \param call must outlive this object
  explicit PerformerCausalBackward(Call& call) : call_(call), stream_(call) {}

  /// Computes the gradients.
  void run(const ExecutorRef& executor) {
    auto&& memory = memory_of(executor);
    const PerformerShape& shape = call_.shape;
    const Index sequences = call_.sequences.count();
    const Index row_tasks = sequences * shape.query_heads;
    const Index key_tasks = sequences * shape.key_heads;
    call_.reserve(row_tasks + key_tasks, memory);
    blocks_ = blocks_of(shape.keys, call_.sequences.packed() ? sequences : 1);
    saved_ = memory.take(shape.batch * shape.query_heads * shape.queries,
                         Stream::kRecord * Index{sizeof(T)});
    references_ = memory.take(shape.batch * shape.key_heads * blocks_,
                              padded_row<T>(shape.features) * Index{sizeof(T)});
    const Index workers = worker_count(executor, (std::max)(row_tasks, key_tasks));
    scratch_ = memory.take(workers, slot_elements(shape) * Index{sizeof(T)});
    rows_.resize(static_cast<std::size_t>(workers * call_.group()));
    memory.require();
    if (executor.only_counts()) return;
    call_.begin();
    for_each_task(executor, row_tasks, [&](Index task, Index worker) {
      const Sequence s = call_.sequences[task / shape.query_heads];
      const Index head = task % shape.query_heads;
      if (call_.visibility.seen(s) == 0) return;
      stream_.up(s, head, Stream::kAll, memory_at(s, head / call_.group(), task, worker));
    });
    if (call_.wants_keys()) {
      for_each_task(executor, key_tasks, [&](Index task, Index worker) {
        const Sequence s = call_.sequences[task / shape.key_heads];
        const Index head = task % shape.key_heads;
        if (call_.visibility.seen(s) == 0 || call_.group() == 0) return;
        stream_.down(s, head, Stream::kAll, memory_at(s, head, row_tasks + task, worker));
      });
    }
    call_.finish();
  }

 private:
  using Stream = FeatureGradStream<T>;

  /// The number of blocks of kFeatureRows tokens of a key head.
  static Index blocks_of(Index keys, Index sequences) { return keys / kFeatureRows + sequences; }
  /// Elements of the state and the scratch of one worker.
  static Index slot_elements(const PerformerShape& shape) {
    return Stream::carried_elements(shape) + padded_row<T>(shape.features) +
           Stream::scratch_elements(shape);
  }

  /// The memory of a worker that processes a head.
  typename Stream::Memory memory_at(const Sequence& s, Index key_head, Index part, Index worker) {
    const PerformerShape& shape = call_.shape;
    const Index row = padded_row<T>(shape.features);
    const Index block = call_.sequences.packed() ? s.first_key / kFeatureRows + s.index : 0;
    const Index rows_before = (shape.queries * s.batch * shape.key_heads + key_head * s.queries +
                               s.first_query * shape.key_heads) *
                              call_.group();
    typename Stream::Memory at;
    at.carried = scratch_.template data<T>() + worker * slot_elements(shape);
    at.reference = at.carried + Stream::carried_elements(shape);
    at.part = call_.part(part);
    at.references = references_.template data<T>() +
                    ((s.batch * shape.key_heads + key_head) * blocks_ + block) * row;
    at.saved = saved_.template data<T>() + rows_before * Stream::kRecord;
    at.scratch = at.reference + row;
    at.rows = rows_.data() + worker * call_.group();
    return at;
  }

  Call& call_;
  Stream stream_;
  Index blocks_ = 0;                     // of a key head
  Workspace saved_;                      // [B, key heads, Nq, group] records, by row blocks
  Workspace references_;                 // [B, Hk, blocks_, row] before each block
  Workspace scratch_;                    // [workers]
  std::vector<LinearGradRows<T>> rows_;  // [workers, group]
};

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
    if (executor.only_counts()) return;
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
