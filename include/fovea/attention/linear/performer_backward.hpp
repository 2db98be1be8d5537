// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Performer attention that is not causal.
#pragma once

#include "fovea/attention/linear/performer_causal_backward.hpp"

FOVEA_NAMESPACE_BEGIN

/// The gradients of random features whose rows see all tokens: the totals of the tokens, segments
/// of rows that read them, the totals of these, and segments of tokens, as in linear attention. The
/// reference of a key head is that of its total.
template <class T>
class PerformerBackward {
 public:
  /// What all parts of the pass have in common.
  using Call = PerformerBackwardCall<T>;

  /// \param call must outlive this object
  explicit PerformerBackward(Call& call) : call_(call) {}

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
  template <class E>
  void run(E&& executor) {
    auto&& memory = memory_of(executor);
    const PerformerShape& shape = call_.shape;
    const auto queries = [&](Index s) { return call_.sequences[s].queries; };
    const auto keys = [&](Index s) { return call_.sequences[s].keys; };
    FeatureTotals<T> of_keys(call_.inputs, call_.sequences, call_.visibility, call_.features,
                             shape.features);
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
        executor,
        [&](Index s) {
          return call_.visibility.seen(call_.sequences[s]) == 0 ? 0 : call_.sequences[s].queries;
        },
        [&](const SequenceTask& segment, T* sums, Index worker) {
          compute_rows(segment, rows.number(segment.sequence, segment.head, segment.part), of_keys,
                       sums, all + worker * slot);
        });
    if (call_.wants_keys()) {
      for_each_task(executor, tokens.count(), [&](Index task, Index worker) {
        compute_tokens(tokens[task], rows.count() + task, of_keys, of_rows, all + worker * slot);
      });
    }
    call_.finish();
  }

 private:
  static Index slot_elements(const PerformerShape& shape) {
    const Index row = padded_row<T>(shape.features);
    const Index own = 2 * kLinearSegment * row + Call::scratch_elements(shape) +
                      padded_row<T>(linear_grad_scratch<T>(shape.features, shape.value_width));
    return (std::max)(own, FeatureTotals<T>::scratch_elements(shape));
  }

  template <class Rows>
  SequenceTasks tasks(Index heads, const Rows& rows) const {
    return {call_.sequences, heads,
            [&](Index s, Index) { return SegmentSums<T>::segments(rows(s)); }};
  }

  void compute_rows(const SequenceTask& segment, Index part, const FeatureTotals<T>& totals,
                    T* sums, T* features) {
    const Sequence s = call_.sequences[segment.sequence];
    const Index key_head = segment.head / call_.group();
    const Index row = call_.features.row();
    const Index first = segment.part * kLinearSegment;
    const Index count = (std::min)(kLinearSegment, s.queries - first);
    T* const d_features = features + kLinearSegment * row;
    T* const scratch = d_features + kLinearSegment * row;
    for (Index n = 0; n < count; n += kFeatureRows) {
      call_.features.queries(
          Call::matrix(call_.inputs.q, s.batch, segment.head, s.first_query + first + n),
          (std::min)(kFeatureRows, count - n), 0, totals.reference(s.index, key_head),
          features + n * row, scratch);
    }
    LinearGradRowsArgs<T> args;
    args.rows.q = {features, row, 1};
    args.rows.d_out = Call::matrix(call_.d_out, s.batch, segment.head, s.first_query + first);
    if (call_.wants_queries()) args.rows.d_q = {d_features, row, 1};
    args.row_count = count;
    args.width = call_.shape.features;
    args.value_width = call_.shape.value_width;
    args.maps = made_features<T>();
    args.total = totals.total(s.index, key_head);
    args.sums = sums;
    args.scratch = scratch + Call::scratch_elements(call_.shape);
    LinearGradKernels<T>{}.rows(args);
    for (Index n = 0; call_.wants_queries() && n < count; n += kFeatureRows) {
      const Index at = s.first_query + first + n;
      call_.finish_rows(Call::matrix(call_.inputs.q, s.batch, segment.head, at),
                        Call::matrix(call_.grads.q, s.batch, segment.head, at),
                        (std::min)(kFeatureRows, count - n), false, features + n * row,
                        d_features + n * row, part, scratch);
    }
  }

  void compute_tokens(const SequenceTask& segment, Index part, const FeatureTotals<T>& totals,
                      const SegmentSums<T>& of_rows, T* features) {
    const Sequence s = call_.sequences[segment.sequence];
    const Index row = call_.features.row();
    T* const d_features = features + kLinearSegment * row;
    T* const scratch = d_features + kLinearSegment * row;
    const Index begin = segment.part * kLinearSegment;
    const Index end = (std::min)(begin + kLinearSegment, call_.visibility.seen(s));
    for (Index n = begin; n < end && call_.group() > 0; n += kFeatureRows) {
      const Index count = (std::min)(kFeatureRows, end - n);
      const Index at = s.first_key + n;
      const Matrix<const T> k = Call::matrix(call_.inputs.k, s.batch, segment.head, at);
      call_.features.logits(k, count, 0, true, features, scratch);
      FeatureRowsArgs<T> rows{features, count, call_.shape.features};
      rows.reference = totals.reference(s.index, segment.head);
      RandomFeatureKernels<T>{}.keys(rows);
      LinearGradKeysArgs<T> args;
      args.tokens.k = {features, row, 1};
      args.tokens.v = Call::matrix(call_.inputs.v, s.batch, segment.head, at);
      if (call_.wants_features()) args.tokens.d_k = {d_features, row, 1};
      args.tokens.d_v = Call::matrix(call_.grads.v, s.batch, segment.head, at);
      args.tokens.count = count;
      args.width = call_.shape.features;
      args.value_width = call_.shape.value_width;
      args.maps = made_features<T>();
      args.total = of_rows.total(s.index, segment.head * call_.group());
      args.scratch = scratch + Call::scratch_elements(call_.shape);
      LinearGradKernels<T>{}.keys(args);
      if (!call_.wants_features()) continue;
      call_.finish_rows(k, Call::matrix(call_.grads.k, s.batch, segment.head, at), count, true,
                        features, d_features, part, scratch);
    }
  }

  Call& call_;
};

FOVEA_NAMESPACE_END
