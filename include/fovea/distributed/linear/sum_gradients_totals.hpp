// SPDX-License-Identifier: MIT
/// \file
/// The distributed gradients of non-causal sums: totals of tokens, then of rows.
#pragma once

#include <algorithm>
#include <exception>
#include <optional>
#include <vector>

#include "fovea/attention/linear/backward_call.hpp"
#include "fovea/attention/linear/segment_sums.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/segments/range_sums.hpp"
#include "fovea/distributed/segments/segment_rows.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The gradients of non-causal sums of one backward pass, with the tensors of SegmentRows.
template <class T, class Field>
class SumGradientsTotals final : public RankPass {
 public:
  /// The state that the parts of the pass share.
  using Call = LinearBackwardCall<T, Field>;

  /// Allocates all memory.
  /// \param call, segments must outlive this object   \param accumulate whether to add to the
  /// gradients
  /// \param wants_products whether `products` will be called
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SumGradientsTotals(const Call& call, const SegmentRows<T>& segments, const Communicator& ranks,
                     bool accumulate, bool wants_products, const ExecutorRef& executor)
      : call_(call),
        segments_(segments),
        accumulate_(accumulate),
        slot_(padded_row<T>(
            (std::max)(linear_grad_scratch<T>(call.far_field.features(call.shape.width),
                                              call.shape.value_width),
                       linear_sum_scratch<T>(call.far_field.linear_shape(call.shape))))),
        scratch_(memory_of(executor).take(worker_count(executor, count() * call.row_heads()),
                                          slot_ * Index{sizeof(T)})),
        of_keys_(ranks, segments.owners(), call.key_heads(), elements(call)),
        of_rows_(ranks, segments.owners(), call.row_heads(), elements(call), call.group()) {
    if (!wants_products) return;
    found_.resize(static_cast<std::size_t>(count() * call.row_heads()));
    sums_.emplace(ranks, segments.layout(), call.shape.query_heads, 1, call.sequences.count());
  }

  /// The sums over batch and rows of <weight d_out_i, far_i>, as in a single-process pass: [Hq].
  /// \pre run was called, and products were requested
  std::vector<double> products() {
    std::vector<double> sums;
    for (Index h = 0; h < call_.shape.query_heads; ++h) sums.push_back(*sums_->of(h));
    return sums;
  }

  /// Writes the gradients of the rows of this rank's segments.
  std::exception_ptr run(const ExecutorRef& executor) override {
    std::exception_ptr error = fovea::detail::caught([&] { sum_tokens(executor); });
    of_keys_.fold([&](Index n) {
      return SegmentSums<T>::segments(call_.seen(call_.sequences[n / call_.shape.key_heads]));
    });
    if (!error) error = fovea::detail::caught([&] { take_rows(executor); });
    of_rows_.fold(
        [&](Index n) { return SegmentSums<T>::segments(rows_seeing(n / call_.shape.key_heads)); });
    if (!error) error = fovea::detail::caught([&] { take_tokens(executor); });
    if (!sums_) return error;
    const std::exception_ptr later =
        sums_->run([&](const ScanStep& scan_step, Index head,
                       double* sum) { add_products(scan_step, head, *sum); },
                   executor);
    return error ? error : later;
  }

 private:
  Index count() const { return static_cast<Index>(segments_.own().size()); }
  /// Elements of the sums of a segment.
  static Index elements(const Call& call) {
    return linear_sum_elements<T>(call.far_field.linear_shape(call.shape));
  }
  T* scratch(Index worker) { return scratch_.template data<T>() + worker * slot_; }

  /// The rows of a sequence that see tokens.
  Index rows_seeing(Index sequence) const {
    const Sequence s = call_.sequences[sequence];
    return call_.seen(s) == 0 ? 0 : s.queries;
  }

  void sum_tokens(const ExecutorRef& executor) {
    for_each_segment(
        segments_.own(), call_.sequences.count(), call_.shape.key_heads, executor,
        [&](Index sequence) { return call_.seen(call_.sequences[sequence]); },
        [&](const SequenceTask& segment, Index n, Index head, Index worker) {
          LinearKernels<T>{}.sum(segment_sum_args(call_.inputs, call_.far_field,
                                                  call_.sequences[segment.sequence], segment,
                                                  of_keys_.sums(head, n), scratch(worker)));
        });
  }

  void take_rows(const ExecutorRef& executor) {
    for_each_segment(
        segments_.own(), call_.sequences.count(), call_.shape.query_heads, executor,
        [&](Index sequence) { return rows_seeing(sequence); },
        [&](const SequenceTask& segment, Index n, Index head, Index worker) {
          LinearGradRowsArgs<T> args = call_.row_args(segment, accumulate_);
          args.total = of_keys_.total(head / call_.group());
          args.sums = of_rows_.sums(head, n);
          args.scratch = scratch(worker);
          if (sums_) args.rows.d_out_times_out = &found_[static_cast<std::size_t>(place(head, n))];
          LinearGradKernels<T>{}.rows(args);
        });
  }

  /// The place of segment n's result for a query head (of all sequences).
  Index place(Index row_head, Index n) const { return row_head * count() + n; }

  /// Adds the results of a range's segments for a query head, in the round's sequence.
  void add_products(const ScanStep& scan_step, Index head, double& sum) const {
    const Index first =
        place(scan_step.round * call_.shape.query_heads + head, scan_step.first / kLinearSegment);
    const Index segments = SegmentSums<T>::segments(scan_step.rows.end - scan_step.rows.begin);
    for (Index n = first; n < first + segments; ++n) {
      sum += static_cast<double>(found_[static_cast<std::size_t>(n)]);
    }
  }

  void take_tokens(const ExecutorRef& executor) {
    for_each_segment(
        segments_.own(), call_.sequences.count(), call_.shape.key_heads, executor,
        [&](Index sequence) { return call_.seen(call_.sequences[sequence]); },
        [&](const SequenceTask& segment, Index, Index head, Index worker) {
          LinearGradKeysArgs<T> args = call_.key_args(segment, accumulate_);
          args.total = of_rows_.total(head);
          args.scratch = scratch(worker);
          LinearGradKernels<T>{}.keys(args);
        });
  }

  const Call& call_;
  const SegmentRows<T>& segments_;
  bool accumulate_;
  Index slot_;
  Workspace scratch_;  // [workers, slot_]
  SegmentTotals<T> of_keys_;
  SegmentTotals<T> of_rows_;
  std::vector<T> found_;                   // [row heads, own segments] products, or none
  std::optional<RangeSums<double>> sums_;  // [query heads] their sums, or none
};

}  // namespace distributed

FOVEA_NAMESPACE_END
