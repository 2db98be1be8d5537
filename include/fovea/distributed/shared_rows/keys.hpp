// SPDX-License-Identifier: MIT
/// \file
/// Softmax attention of a sharded sequence to replicated keys. Every rank computes its own rows,
/// without communication, and gradients of queries likewise; each query block's contribution to
/// those of keys is stored, and summed along the ranges.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "fovea/attention/softmax/backward_call.hpp"
#include "fovea/attention/softmax/dense.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/rows/own_range.hpp"
#include "fovea/distributed/segments/range_sums.hpp"
#include "fovea/distributed/segments/segment_rows.hpp"
#include "fovea/distributed/softmax/sink_gradients.hpp"
#include "fovea/patterns/plan_part.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One forward pass.
template <class T>
class SharedKeysForward final : public RankPass {
 public:
  /// Allocates all memory.
  /// \param inputs q of this rank's rows, and k and v, the same on all ranks; checked
  /// \param out, saved of this rank's rows, written   \throws std::bad_alloc
  SharedKeysForward(const SoftmaxInputs<T>& inputs, const SoftmaxOptions& options,
                    const View<T>& out, const SoftmaxSaved<T>& saved, const Sharding& rows,
                    const ExecutorRef& executor) {
    if (!has_rows(inputs.q)) return;
    const HeadPlans whole(EveryKey{}, inputs.q.heads(),
                          SequenceShape::of(rows.count(), inputs.k.rows(), options.alignment));
    for (const OwnRange& range : own_ranges(rows)) {
      SoftmaxInputs<T> in = inputs;
      in.q = range.of(inputs.q);
      parts_.push_back(std::make_unique<Part>(in, options, whole, range, out, saved));
      parts_.back()->pass.reserve(executor);
    }
  }

  /// Computes this rank's rows. \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) override {
    return fovea::detail::caught([&] {
      for (const auto& part : parts_) part->pass.compute(executor);
    });
  }

 private:
  /// The rows of one range.
  struct Part {
    Part(const SoftmaxInputs<T>& in, const SoftmaxOptions& options, const HeadPlans& whole,
         const OwnRange& range, const View<T>& out, const SoftmaxSaved<T>& saved)
        : call(in, options),
          plans(whole.cut([&](const AnyPlan& plan) {
            return std::vector<AnyPlan>{AnyPlan(PlanPart(plan, {&range.range(), 1}))};
          })),
          pass(call, plans, range.of(out), {range.of(saved.lse)}) {}

    SoftmaxCall<T> call;
    HeadPlans plans;
    SoftmaxForward<T> pass;
  };

  std::vector<std::unique_ptr<Part>> parts_;
};

/// One backward pass.
template <class T>
class SharedKeysBackward final : public RankPass {
 public:
  /// Allocates all memory except for rows with a large lse.
  /// \param inputs as in SharedKeysForward, checked
  /// \param out, saved, d_out, d_lse of this rank's rows; d_lse empty on all ranks if it is 0
  /// \param grads q of this rank's rows, k and v [B, Hk, P, ...], and sink, requested by all ranks
  /// or none
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SharedKeysBackward(const SoftmaxInputs<T>& inputs, const SoftmaxOptions& options,
                     const View<const T>& out, const SoftmaxSaved<T>& saved,
                     const View<const T>& d_out, const SoftmaxGrads<T>& grads, const Sharding& rows,
                     const ExecutorRef& executor, const View<const T>& d_lse = {})
      : inputs_(inputs),
        out_(out),
        saved_(saved),
        d_out_(d_out),
        d_lse_(d_lse),
        grads_(grads),
        rank_(rows.ranks().rank()),
        segments_(rows, inputs.q.batch(), query_tensors(), {{inputs.q.heads(), inputs.q.width()}},
                  false, OwnSegmentsOnly{}, block_rows(rows.count())),
        call_(whole_inputs(), options),
        plans_(HeadPlans(EveryKey{}, inputs.q.heads(),
                         SequenceShape::of(rows.count(), inputs.k.rows(), options.alignment))
                   .cut([&](const AnyPlan& plan) {
                     return std::vector<AnyPlan>{
                         AnyPlan(PlanPart(plan, segments_.layout().of(rank_)))};
                   })),
        pass_(call_, plans_, segments_.read(kOut), {segments_.read(kLse)},
              segments_.read(kGradOfOut), {},
              d_lse.empty() ? d_lse : View<const T>(segments_.read(kGradOfLse))),
        workers_((std::max)(worker_count(executor, most_tasks()), Index{1})),
        parts_(memory_of(executor).take(heads() * own_count(), elements() * Index{sizeof(T)})),
        sums_(rows.ranks(), segments_.layout(), key_heads(), elements(), group(), workers_) {
    pass_.take_scratch(workers_, memory_of(executor));
    if (grads.sink.empty()) return;
    sinks_.emplace(rows.ranks(), segments_.layout(), inputs.q.batch(), inputs.q.heads(), workers_);
  }

  /// Computes the pass. All messages are exchanged even if computing throws.
  /// \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) override {
    segments_.put(kQ, inputs_.q);
    segments_.put(kOut, out_);
    segments_.put(kGradOfOut, d_out_);
    segments_.put(kLse, View<const T>(saved_.lse));
    if (!d_lse_.empty()) segments_.put(kGradOfLse, d_lse_);
    segments_.bring();
    std::exception_ptr error = fovea::detail::caught([&] {
      pass_.look_for_large(memory_of(executor));
      pass_.find_lse_low(executor);
      for_each_task(executor, heads() * own_count(), [&](Index task, Index worker) {
        take_rows(task / own_count(), task % own_count(), worker);
      });
    });
    segments_.bring_back();
    const auto then = [&](const std::exception_ptr& later) {
      if (!error) error = later;
    };
    if (sinks_) then(sinks_->run(pass_, call_.sequences(), executor));
    then(sums_.run([&](const ScanStep& scan_step, Index head, T* sums,
                       Index /*worker*/) { add_parts(scan_step, head, sums); },
                   executor));
    if (!error) write();
    return error;
  }

 private:
  enum : std::size_t { kQ, kOut, kGradOfOut, kLse, kGradOfLse };

  typename SegmentRows<T>::Sizes query_tensors() const {
    return {{inputs_.q.heads(), inputs_.q.width()},
            {inputs_.q.heads(), inputs_.v.width()},
            {inputs_.q.heads(), inputs_.v.width()},
            {inputs_.q.heads(), 1},
            {d_lse_.empty() ? 0 : inputs_.q.heads(), 1}};
  }
  SoftmaxInputs<T> whole_inputs() const {
    SoftmaxInputs<T> in = inputs_;
    in.q = segments_.read(kQ);
    return in;
  }
  /// The plan of the rows that this rank sums, whole blocks.
  const AnyPlan& plan() const { return plans_.plan(0, 0, 0); }
  Index own_count() const { return plan().block_count(); }

  /// Query heads of all sequences.
  Index heads() const { return inputs_.q.batch() * inputs_.q.heads(); }
  Index key_heads() const { return inputs_.k.batch() * inputs_.k.heads(); }
  Index group() const { return fovea::detail::group_size(inputs_.q.heads(), inputs_.k.heads()); }
  Index most_tasks() const { return (std::max)(heads() * own_count(), key_heads()); }

  Index key_elements() const { return inputs_.k.rows() * padded_size(inputs_.k.width()); }
  /// Elements of the sums of keys, followed by those of values.
  Index elements() const {
    return key_elements() + inputs_.v.rows() * padded_size(inputs_.v.width());
  }
  /// The unscaled contribution of this rank's block n to the gradients of keys and values.
  T* part(Index head, Index n) {
    return parts_.template data<T>() + (head * own_count() + n) * elements();
  }

  /// Computes the gradients of a head's query block n, and its contribution to those of keys.
  void take_rows(Index head, Index n, Index worker) {
    const Sequence s = call_.sequences()[head / inputs_.q.heads()];
    const Index h = head % inputs_.q.heads();
    auto buffers = pass_.buffers(worker);
    T* const sums = part(head, n);
    std::fill_n(sums, elements(), T{0});
    SoftmaxGradArgs<T> args;
    args.scratch = buffers.kernel;
    args.head = pass_.head(s, h);
    args.block = plan().block(n, buffers.storage);
    args.row_end = args.block.count;
    args.d_q = buffers.d_q;
    const auto write = [&](bool add) {
      SoftmaxGradKernels<T>{}.scaled_rows(
          {buffers.d_q, fovea::detail::head_matrix(segments_.made(0), s.batch, h, 0),
           args.block.first, args.block.step, args.block.count, inputs_.q.width(),
           call_.scale() * pass_.unlift(), add});
    };
    if (s.key_end == 0) {
      std::fill_n(buffers.d_q, args.block.count * padded_size(inputs_.q.width()), T{0});
      return write(false);
    }
    for (Index p = 0; p < plan().key_block_count(); ++p) {
      const KeyBlock keys = plan().key_block(p);
      if (keys.first >= s.key_end) break;
      pass_.set_keys(keys, s, h / group(), 0, buffers, args);
      args.d_k = sums + keys.first * padded_size(inputs_.k.width());
      args.d_v = sums + key_elements() + keys.first * padded_size(inputs_.v.width());
      SoftmaxGradKernels<T>{}.grad(args);
      write(p > 0);
    }
  }

  /// Adds the contributions of a range's blocks to the sums of a key head, one query head per
  /// round.
  void add_parts(const ScanStep& scan_step, Index key_head, T* to) {
    for (Index n = 0; n < own_count(); ++n) {
      if (!scan_step.rows.holds(plan().rows(n).first)) continue;
      const T* const from = part(key_head * group() + scan_step.round, n);
      for (Index i = 0; i < elements(); ++i) to[i] += from[i];
    }
  }

  /// Writes the requested gradients.
  void write() {
    segments_.take(0, grads_.q);
    if (sinks_) sinks_->write(grads_.sink);
    const auto write_rows = [&](const View<T>& to, Index first, T scale) {
      if (to.empty()) return;
      for (Index head = 0; head < key_heads(); ++head) {
        SoftmaxGradKernels<T>{}.scaled_rows(
            {sums_.of(head) + first,
             fovea::detail::head_matrix(to, head / to.heads(), head % to.heads(), 0), 0, 1,
             to.rows(), to.width(), scale, false});
      }
    };
    write_rows(grads_.k, 0, call_.scale() * pass_.unlift());
    write_rows(grads_.v, key_elements(), pass_.unlift());
  }

  SoftmaxInputs<T> inputs_;
  View<const T> out_;
  SoftmaxSaved<T> saved_;
  View<const T> d_out_;
  View<const T> d_lse_;
  SoftmaxGrads<T> grads_;
  int rank_;
  SegmentRows<T> segments_;
  SoftmaxCall<T> call_;
  HeadPlans plans_;
  BackwardCall<T> pass_;
  Index workers_;
  Workspace parts_;    // [B, Hq, own blocks, P, D and Dv padded]
  RangeSums<T> sums_;  // of a key head: those of its keys and values, [P, D and Dv padded]
  std::optional<SinkGradients<T>> sinks_;  // if requested
};

}  // namespace distributed

FOVEA_NAMESPACE_END
