// SPDX-License-Identifier: MIT
/// \file
/// The two steps of non-causal Performer attention's backward pass: segments of rows that read the
/// tokens' total, and segments of tokens that read the rows' total.
#pragma once

#include <algorithm>

#include "fovea/attention/linear/performer_backward_call.hpp"

FOVEA_NAMESPACE_BEGIN

/// Both steps of a call. Features are relative to the reference of the tokens' total.
template <class T>
class FeatureGradSegments {
 public:
  /// The common part of the pass.
  using Call = PerformerBackwardCall<T>;

  /// \param call must outlive this object
  explicit FeatureGradSegments(Call& call) : call_(call) {}

  /// Elements of scratch of both steps.
  static Index scratch_elements(const PerformerShape& shape) {
    return 2 * kLinearSegment * padded_row<T>(shape.features) + Call::scratch_elements(shape) +
           padded_row<T>(linear_grad_scratch<T>(shape.features, shape.value_width));
  }

  /// Writes d_q of a segment of a query head's rows, and its contribution to the tokens.
  /// \param total of the tokens
  /// \param reference [R padded] of the total
  /// \param part part of the projection's gradient; null: not wanted
  /// \param sums [linear_sum_elements] the rows' contribution, written
  /// \param features [scratch_elements] scratch
  void rows(const SequenceTask& segment, const T* total, T* reference, T* part, T* sums,
            T* features) {
    const Sequence s = call_.sequences[segment.sequence];
    const Index row = call_.features.row();
    const Index first = segment.part * kLinearSegment;
    const Index count = (std::min)(kLinearSegment, s.queries - first);
    T* const d_features = features + kLinearSegment * row;
    T* const scratch = d_features + kLinearSegment * row;
    for (Index n = 0; n < count; n += kFeatureRows) {
      call_.features.queries(
          Call::matrix(call_.inputs.q, s.batch, segment.head, s.first_query + first + n),
          (std::min)(kFeatureRows, count - n), 0, reference, features + n * row, scratch);
    }
    LinearGradRowsArgs<T> args;
    args.rows.q = {features, row, 1};
    args.rows.d_out = Call::matrix(call_.d_out, s.batch, segment.head, s.first_query + first);
    if (call_.wants_queries()) args.rows.d_q = {d_features, row, 1};
    args.row_count = count;
    args.width = call_.shape.features;
    args.value_width = call_.shape.value_width;
    args.maps = made_features<T>();
    args.total = total;
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

  /// Writes d_k and d_v of a segment of a key head's tokens.
  /// \param total of the rows
  /// \param reference [R padded] of the tokens' total
  /// \param part, features as in `rows`
  void tokens(const SequenceTask& segment, const T* total, T* reference, T* part, T* features) {
    const Sequence s = call_.sequences[segment.sequence];
    const Index row = call_.features.row();
    T* const d_features = features + kLinearSegment * row;
    T* const scratch = d_features + kLinearSegment * row;
    const Index begin = segment.part * kLinearSegment;
    const Index end = (std::min)(begin + kLinearSegment, call_.visibility.seen(s));
    for (Index n = begin; n < end; n += kFeatureRows) {
      const Index count = (std::min)(kFeatureRows, end - n);
      const Index at = s.first_key + n;
      const Matrix<const T> k = Call::matrix(call_.inputs.k, s.batch, segment.head, at);
      call_.features.logits(k, count, 0, true, features, scratch);
      FeatureRowsArgs<T> rows{features, count, call_.shape.features};
      rows.reference = reference;
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
      args.total = total;
      args.scratch = scratch + Call::scratch_elements(call_.shape);
      LinearGradKernels<T>{}.keys(args);
      if (!call_.wants_features()) continue;
      call_.finish_rows(k, Call::matrix(call_.grads.k, s.batch, segment.head, at), count, true,
                        features, d_features, part, scratch);
    }
  }

 private:
  Call& call_;
};

FOVEA_NAMESPACE_END
