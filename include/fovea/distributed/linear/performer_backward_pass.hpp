// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Performer attention across ranks.
#pragma once

#include <algorithm>
#include <exception>
#include <optional>
#include <vector>

#include "fovea/attention/linear/feature_grad_segments.hpp"
#include "fovea/attention/linear/performer_passes.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/distributed/linear/backward_pass.hpp"
#include "fovea/distributed/linear/feature_gradients_scan.hpp"
#include "fovea/distributed/linear/sharded_feature_totals.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/segments/range_sums.hpp"
#include "fovea/distributed/segments/segment_rows.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The gradients of non-causal random features of one backward pass, with the tensors of
/// SegmentRows.
template <class T>
class FeatureGradientsTotals final : public RankPass {
 public:
  /// The state that the parts of the pass share.
  using Call = PerformerBackwardCall<T>;

  /// Allocates all memory.
  /// \param call, segments must outlive this object; allocates the call's memory, too
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  FeatureGradientsTotals(Call& call, const SegmentRows<T>& segments, const Communicator& ranks,
                         const ExecutorRef& executor)
      : call_(call),
        segments_(segments),
        sums_(call.inputs, call.features),
        steps_(call),
        slot_((std::max)(FeatureGradSegments<T>::scratch_elements(call.shape),
                         FeatureSegments<T>::sum_scratch(call.shape))),
        scratch_(memory_of(executor).take(worker_count(executor, count() * row_heads()),
                                          slot_ * Index{sizeof(T)})),
        of_keys_(ranks, segments.owners(), call.shape),
        of_rows_(ranks, segments.owners(), row_heads(),
                 FeatureSegments<T>::sum_elements(call.shape), call.group()) {
    call.reserve(count() * (row_heads() + key_heads()), memory_of(executor));
    if (!call.wants_projection()) return;
    projection_.emplace(ranks, segments.layout(), 1, Call::part_elements(call.shape),
                        row_heads() + key_heads());
  }

  /// Writes the gradients of the rows of this rank's segments, and on all ranks that of the
  /// projection.
  std::exception_ptr run(const ExecutorRef& executor) override {
    call_.prepare();
    std::exception_ptr error = fovea::detail::caught([&] { sum_tokens(executor); });
    const std::exception_ptr later = of_keys_.fold(executor, [&](Index n) {
      return SegmentSums<T>::segments(seen(n / call_.shape.key_heads));
    });
    if (!error) error = later;
    if (!error) error = fovea::detail::caught([&] { take_rows(executor); });
    of_rows_.fold(
        [&](Index n) { return SegmentSums<T>::segments(rows_seeing(n / call_.shape.key_heads)); });
    if (!error) error = fovea::detail::caught([&] { take_tokens(executor); });
    if (!projection_) return error;
    const std::exception_ptr last = add_up(executor);
    if (!error) error = last;
    if (!error) call_.add_parts(nullptr, 0, projection_->of(0), true);
    return error;
  }

 private:
  /// Query heads, and key heads, of all sequences.
  Index row_heads() const { return call_.shape.batch * call_.shape.query_heads; }
  Index key_heads() const { return call_.shape.batch * call_.shape.key_heads; }
  /// This rank's segments.
  Index count() const { return static_cast<Index>(segments_.own().size()); }
  T* scratch(Index worker) { return scratch_.template data<T>() + worker * slot_; }
  /// The tokens of a sequence that rows see, and the rows that see them.
  Index seen(Index sequence) const {
    return call_.group() == 0 ? 0 : call_.visibility.seen(call_.sequences[sequence]);
  }
  Index rows_seeing(Index sequence) const {
    return seen(sequence) == 0 ? 0 : call_.sequences[sequence].queries;
  }

  void sum_tokens(const ExecutorRef& executor) {
    for_each_segment(
        segments_.own(), call_.sequences.count(), call_.shape.key_heads, executor,
        [&](Index sequence) { return seen(sequence); },
        [&](const SequenceTask& segment, Index n, Index head, Index worker) {
          sums_.sum(call_.sequences[segment.sequence], segment, seen(segment.sequence),
                    of_keys_.sums(head, n), scratch(worker));
        });
  }

  void take_rows(const ExecutorRef& executor) {
    for_each_segment(
        segments_.own(), call_.sequences.count(), call_.shape.query_heads, executor,
        [&](Index sequence) { return rows_seeing(sequence); },
        [&](const SequenceTask& segment, Index n, Index head, Index worker) {
          const Index key_head = head / call_.group();
          steps_.rows(segment, of_keys_.total(key_head), of_keys_.reference(key_head),
                      call_.part(head * count() + n), of_rows_.sums(head, n), scratch(worker));
        });
  }

  void take_tokens(const ExecutorRef& executor) {
    for_each_segment(
        segments_.own(), call_.sequences.count(), call_.shape.key_heads, executor,
        [&](Index sequence) { return seen(sequence); },
        [&](const SequenceTask& segment, Index n, Index head, Index worker) {
          steps_.tokens(segment, of_rows_.total(head), of_keys_.reference(head),
                        call_.part((row_heads() + head) * count() + n), scratch(worker));
        });
  }

  /// Sums the parts of all segments of all query heads, and then of all key heads.
  std::exception_ptr add_up(const ExecutorRef& executor) {
    return projection_->run(
        [&](const ScanStep& scan_step, Index, T* sums, Index) {
          call_.add_parts(call_.part(scan_step.round * count() + scan_step.first / kLinearSegment),
                          SegmentSums<T>::segments(scan_step.rows.end - scan_step.rows.begin), sums,
                          false);
        },
        executor);
  }

  Call& call_;
  const SegmentRows<T>& segments_;
  FeatureSegments<T> sums_;
  FeatureGradSegments<T> steps_;
  Index slot_;
  Workspace scratch_;  // [workers, slot_]
  ShardedFeatureTotals<T> of_keys_;
  SegmentTotals<T> of_rows_;
  std::optional<RangeSums<T>> projection_;  // its gradient in two words
};

/// One backward pass.
template <class T>
class LinearBackwardPass<PerformerBackwardPasses<T>> final : public RankPass {
 public:
  /// Allocates all memory.
  /// \param call the FarFieldBackwardCall, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class Call>
  LinearBackwardPass(const Call& call, const ExecutorRef& executor)
      : inputs_(call.inputs),
        d_out_(call.d_out),
        grads_(call.grads),
        segments_(call.rows, inputs_.q.batch(), sizes_read(inputs_), sizes_made(inputs_), false,
                  [&](const std::vector<Range>& summed) {
                    return call.op.far_field.causal
                               ? rows_of_open_blocks(inputs_.key_lengths, call.rows.count(), summed)
                               : std::vector<Range>{};
                  }),
        whole_(whole_inputs()),
        call_(whole_, call.op.far_field, segments_.read(kGradOfOut), whole_grads()) {
    if (call.op.far_field.causal) {
      scan_.emplace(call_, segments_, call.rows.ranks(), executor);
    } else {
      totals_.emplace(call_, segments_, call.rows.ranks(), executor);
    }
  }

  /// Writes the gradients of this rank's rows, and that of the projection.
  std::exception_ptr run(const ExecutorRef& executor) override {
    segments_.put(kQ, inputs_.q);
    segments_.put(kK, inputs_.k);
    segments_.put(kV, inputs_.v);
    segments_.put(kGradOfOut, d_out_);
    segments_.bring();
    const std::exception_ptr error = scan_ ? scan_->run(executor) : totals_->run(executor);
    segments_.bring_back();
    if (error) return error;
    segments_.take(kQ, grads_.q);
    segments_.take(kK, grads_.k);
    segments_.take(kV, grads_.v);
    return nullptr;
  }

 private:
  using Sizes = typename SegmentRows<T>::Sizes;
  /// The tensors read. Gradients are computed for the first three.
  enum : std::size_t { kQ, kK, kV, kGradOfOut };

  static Sizes sizes_made(const PerformerInputs<T>& in) {
    return {
        {in.q.heads(), in.q.width()}, {in.k.heads(), in.k.width()}, {in.v.heads(), in.v.width()}};
  }
  static Sizes sizes_read(const PerformerInputs<T>& in) {
    Sizes sizes = sizes_made(in);
    sizes.emplace_back(in.q.heads(), in.v.width());
    return sizes;
  }

  PerformerInputs<T> whole_inputs() const {
    PerformerInputs<T> whole = inputs_;
    whole.q = segments_.read(kQ);
    whole.k = segments_.read(kK);
    whole.v = segments_.read(kV);
    return whole;
  }
  PerformerGrads<T> whole_grads() const {
    PerformerGrads<T> whole;
    whole.q = segments_.made(kQ);
    whole.k = segments_.made(kK);
    whole.v = segments_.made(kV);
    whole.projection = grads_.projection;
    return whole;
  }

  const PerformerInputs<T>& inputs_;
  const View<const T>& d_out_;
  const PerformerGrads<T>& grads_;
  SegmentRows<T> segments_;
  PerformerInputs<T> whole_;  // of this rank's segments, and of the rows that they read
  PerformerBackwardCall<T> call_;
  std::optional<FeatureGradientsScan<T>> scan_;      // if causal
  std::optional<FeatureGradientsTotals<T>> totals_;  // if not
};

}  // namespace distributed

FOVEA_NAMESPACE_END
