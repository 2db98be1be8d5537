// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of softmax attention of replicated queries to the keys of a sharded sequence.
/// Gradients of keys are computed locally; each key block's contribution to those of queries is
/// stored, and summed along the ranges.
#pragma once

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <optional>
#include <vector>

#include "fovea/attention/softmax/backward_call.hpp"
#include "fovea/attention/softmax/dense.hpp"
#include "fovea/distributed/messages/collective_check.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/messages/pipelined_scan.hpp"
#include "fovea/distributed/segments/range_sums.hpp"
#include "fovea/distributed/segments/segment_rows.hpp"
#include "fovea/patterns/plan_part.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The low parts of one backward pass. Running softmaxes without values are passed from range to
/// range.
template <class T>
class SharedLseLow {
 public:
  /// Allocates all memory.
  /// \param call of all keys, of which this rank has those of the layout; it must outlive this
  /// object   \param plan of all queries and keys   \param lse [B, Hq, P, 1], the same on all ranks
  /// \param layout ranges that begin at multiples of kKeySegment   \param at_once the number of
  /// heads processed together
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SharedLseLow(const SoftmaxCall<T>& call, const AnyPlan& plan, const View<T>& lse,
               const Communicator& ranks, const RowLayout& layout, Index at_once)
      : call_(call),
        plan_(plan),
        lse_(lse),
        ranks_(ranks),
        scan_(ranks, layout, ScanDirection::up, lse.batch() * lse.heads(),
              kRowElements * lse.rows() * Index{sizeof(T)}, at_once) {}
  SharedLseLow(const SharedLseLow&) = delete;
  SharedLseLow& operator=(const SharedLseLow&) = delete;

  /// Whether any row has a large lse. Collective, with the same result on all ranks.
  bool are_needed() const {
    bool is_any = false;
    for (Index b = 0; b < lse_.batch(); ++b) {
      for (Index h = 0; h < lse_.heads(); ++h) {
        is_any = is_any || is_any_large(b, h, {0, 1, lse_.rows()});
      }
    }
    return detail::lowest_rank(ranks_, is_any) < ranks_.size();
  }

  /// Computes them. All messages are exchanged even if computing throws.
  /// \param scratch called as scratch(worker), gives an LseScratch
  /// \returns the exception that computing threw, or null
  template <class Scratch>
  std::exception_ptr run(const ExecutorRef& executor, const Scratch& scratch) {
    const std::exception_ptr error =
        scan_.run([&](const ScanStep& scan_step, Index first, Index end) {
          const AnyPlan part(
              PlanPart(plan_, {&kEverywhere, 1}, scan_step.rows, PlanPart::EmptyPieces::kept));
          for_each_task(executor, end - first, [&](Index task, Index worker) {
            LseScratch<T> own = scratch(worker);
            for (Index n = 0; n < part.block_count(); ++n) {
              add(scan_step.rows, part.block(n, own.storage), first + task, own.kernel);
            }
          });
        });
    scan_.give_to_all();
    return error;
  }

  /// The low parts, [B, Hq, P, 1]. \pre run was called
  View<const T> values() {
    const Index heads = lse_.heads();
    const Index state = kRowElements * lse_.rows();
    return View<const T>(low(0), lse_.shape(), {heads * state, state, 1, 1});
  }

 private:
  /// Three numbers of a running softmax, and the low part.
  static constexpr Index kRowElements = 4;

  T* softmax(Index head) { return scan_.template state<T>(head); }
  T* low(Index head) { return softmax(head) + (kRowElements - 1) * lse_.rows(); }

  bool is_any_large(Index b, Index h, const RowBlock& rows) const {
    for (Index i = 0; i < rows.count; ++i) {
      const T size = std::abs(lse_(b, h, rows.first + rows.step * i, 0));
      if (kLargeLse < size && size < std::numeric_limits<T>::infinity()) return true;
    }
    return false;
  }

  /// Adds the keys of a range to the softmaxes of a block of rows, if one of them has a large lse.
  void add(const Range& keys, const QueryBlock& block, Index head, T* scratch) {
    const Sequence s = call_.sequences()[head / lse_.heads()];
    const Index h = head % lse_.heads();
    if (keys.begin == 0) std::fill_n(low(head) + block.first, block.count, T{0});
    if (keys.begin > (std::max)(s.key_end - 1, Index{0})) return;
    if (!is_any_large(s.batch, h, {block.first, block.step, block.count})) return;
    SoftmaxBlockArgs<T> args = call_.args(s, h, View<T>(), SoftmaxSaved<T>{lse_});
    args.block = block;
    args.block.most_keys = kUnboundedKeys;
    args.value_width = 0;
    args.lse_low = low(head);
    args.carry.rows = softmax(head);
    args.carry.resumes = keys.begin > 0;
    args.carry.suspends = keys.end < s.key_end;
    args.scratch = scratch;
    SoftmaxKernels<T>{}.block(args);
  }

  const SoftmaxCall<T>& call_;
  AnyPlan plan_;
  View<T> lse_;
  const Communicator& ranks_;
  PipelinedScan scan_;  // of a head: [P, 3], and then the low parts [P]
};

/// One backward pass.
template <class T>
class SharedQueriesBackward final : public RankPass {
 public:
  /// Allocates all memory except for rows with a large lse.
  /// \param inputs as in SharedQueriesForward, checked
  /// \param out, saved, d_out, d_lse [B, Hq, P, ...], the same on all ranks
  /// \param grads q [B, Hq, P, D], requested by all ranks or none, k and v of this rank's rows, and
  /// sink
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SharedQueriesBackward(const SoftmaxInputs<T>& inputs, const SoftmaxOptions& options,
                        const View<const T>& out, const SoftmaxSaved<T>& saved,
                        const View<const T>& d_out, const SoftmaxGrads<T>& grads,
                        const Sharding& rows, const ExecutorRef& executor,
                        const View<const T>& d_lse = {})
      : inputs_(inputs),
        grads_(grads),
        segments_(rows, inputs.q.batch(), key_tensors(), key_tensors(), false, OwnSegmentsOnly{},
                  kKeySegment),
        call_(whole_inputs(), options),
        plans_(EveryKey{}, inputs.q.heads(),
               SequenceShape::of(inputs.q.rows(), rows.count(), options.alignment)),
        pass_(call_, plans_, out, saved, d_out, of_sinks(grads), d_lse),
        blocks_(own_blocks(rows.ranks().rank())),
        workers_((std::max)(worker_count(executor, most_tasks()), Index{1})),
        low_(call_, plan(), saved.lse, rows.ranks(), segments_.layout(), workers_) {
    pass_.take_scratch(workers_, memory_of(executor));
    if (grads.q.empty()) return;
    parts_ = memory_of(executor).take(heads() * own_count(), part_elements() * Index{sizeof(T)});
    d_q_.emplace(rows.ranks(), segments_.layout(), heads(), inputs.q.rows() * inputs.q.width(), 1,
                 workers_);
  }

  /// Computes the pass. All messages are exchanged even if computing throws.
  /// \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) override {
    segments_.put(kK, inputs_.k);
    segments_.put(kV, inputs_.v);
    segments_.bring();
    std::exception_ptr error = find_low(executor);
    if (!error) error = fovea::detail::caught([&] { compute(executor); });
    segments_.bring_back();
    if (d_q_) {
      const std::exception_ptr later =
          d_q_->run([&](const ScanStep& scan_step, Index head, T* sums,
                        Index /*worker*/) { add_parts(scan_step, head, sums); },
                    executor);
      if (!error) error = later;
    }
    if (!error) write();
    return error;
  }

 private:
  enum : std::size_t { kK, kV };

  static SoftmaxGrads<T> of_sinks(const SoftmaxGrads<T>& grads) {
    SoftmaxGrads<T> only;
    only.sink = grads.sink;
    return only;
  }

  typename SegmentRows<T>::Sizes key_tensors() const {
    return {{inputs_.k.heads(), inputs_.k.width()}, {inputs_.v.heads(), inputs_.v.width()}};
  }
  SoftmaxInputs<T> whole_inputs() const {
    SoftmaxInputs<T> in = inputs_;
    in.k = segments_.read(kK);
    in.v = segments_.read(kV);
    return in;
  }
  const AnyPlan& plan() const { return plans_.plan(0, 0, 0); }

  /// The key blocks of this rank: whole segments.
  std::vector<Index> own_blocks(int rank) const {
    std::vector<Index> blocks;
    const Index rows = plan().largest_key_block();
    for (const Range& range : segments_.layout().of(rank)) {
      for (Index p = range.begin / rows; p * rows < range.end; ++p) blocks.push_back(p);
    }
    return blocks;
  }
  Index own_count() const { return static_cast<Index>(blocks_.size()); }
  KeyBlock own_block(Index n) const {
    return plan().key_block(blocks_[static_cast<std::size_t>(n)]);
  }

  /// Query heads of all sequences.
  Index heads() const { return inputs_.q.batch() * inputs_.q.heads(); }
  Index key_heads() const { return inputs_.k.batch() * inputs_.k.heads(); }
  Index most_tasks() const { return (std::max)(key_heads() * own_count(), heads()); }
  Index part_elements() const { return inputs_.q.rows() * padded_size(inputs_.q.width()); }
  /// The unscaled contribution of this rank's block n to the gradients of a head's queries.
  T* part(Index head, Index n) {
    return parts_.template data<T>() + (head * own_count() + n) * part_elements();
  }

  std::exception_ptr find_low(const ExecutorRef& executor) {
    has_low_ = low_.are_needed();
    if (!has_low_) return nullptr;
    const std::exception_ptr error = low_.run(executor, [this](Index worker) {
      auto own = pass_.buffers(worker);
      return LseScratch<T>{std::move(own.storage), own.kernel};
    });
    if (error) return error;
    return fovea::detail::caught([&] { pass_.give_lse_low(low_.values(), memory_of(executor)); });
  }

  void compute(const ExecutorRef& executor) {
    for_each_task(executor, key_heads() * own_count(), [&](Index task, Index worker) {
      take_keys(task / own_count(), task % own_count(), worker);
    });
    if (!grads_.sink.empty()) pass_.write_sinks(executor);
  }

  /// Computes the gradients of this rank's key block n, and its contribution to those of queries.
  void take_keys(Index key_head, Index n, Index worker) {
    const Sequence s = call_.sequences()[key_head / inputs_.k.heads()];
    const KeyBlock keys = own_block(n);
    auto buffers = pass_.buffers(worker);
    const Index group = pass_.query_heads() / pass_.key_heads();
    const Index of_sequence = key_head % inputs_.k.heads();
    SoftmaxGradArgs<T> args;
    args.scratch = buffers.kernel;
    args.d_k = buffers.d_k;
    args.d_v = buffers.d_v;
    if (keys.first < s.key_end) pass_.set_keys(keys, s, of_sequence, 0, buffers, args);
    for (Index h = of_sequence * group; h < (of_sequence + 1) * group; ++h) {
      args.head = pass_.head(s, h);
      for (Index b = 0; keys.first < s.key_end && b < plan().block_count(); ++b) {
        args.block = plan().block(b, buffers.storage);
        args.row_end = args.block.count;
        if (d_q_) {
          args.d_q = part(s.batch * inputs_.q.heads() + h, n) +
                     args.block.first * padded_size(inputs_.q.width());
        }
        SoftmaxGradKernels<T>{}.grad(args);
        args.add = true;
      }
    }
    const auto write = [&](const View<T>& to, T* rows, T scale) {
      if (!args.add) std::fill_n(rows, keys.count * padded_size(to.width()), T{0});
      SoftmaxGradKernels<T>{}.scaled_rows(
          {rows, fovea::detail::head_matrix(to, s.batch, of_sequence, 0), keys.first, keys.step,
           keys.count, to.width(), scale, false});
    };
    write(segments_.made(kK), buffers.d_k, call_.scale() * pass_.unlift());
    write(segments_.made(kV), buffers.d_v, pass_.unlift());
  }

  /// Adds the contributions of a range's blocks to the gradients of a head's queries.
  void add_parts(const ScanStep& scan_step, Index head, T* sums) {
    const Index key_end = call_.sequences()[head / inputs_.q.heads()].key_end;
    for (Index n = 0; n < own_count(); ++n) {
      const Index key = own_block(n).first;
      if (!scan_step.rows.holds(key) || key >= key_end) continue;
      const Matrix<T> to = {sums, inputs_.q.width(), 1};
      SoftmaxGradKernels<T>{}.scaled_rows({part(head, n), to, 0, 1, inputs_.q.rows(),
                                           inputs_.q.width(), call_.scale() * pass_.unlift(),
                                           key > 0});
    }
  }

  /// Writes the requested gradients.
  void write() {
    segments_.take(kK, grads_.k);
    segments_.take(kV, grads_.v);
    if (!d_q_) return;
    for (Index head = 0; head < heads(); ++head) {
      const T* from = d_q_->of(head);
      for (Index n = 0; n < inputs_.q.rows(); ++n) {
        for (Index c = 0; c < inputs_.q.width(); ++c) {
          grads_.q(head / inputs_.q.heads(), head % inputs_.q.heads(), n, c) = *from++;
        }
      }
    }
  }

  SoftmaxInputs<T> inputs_;
  SoftmaxGrads<T> grads_;
  SegmentRows<T> segments_;
  SoftmaxCall<T> call_;
  HeadPlans plans_;  // of all keys
  BackwardCall<T> pass_;
  std::vector<Index> blocks_;  // this rank's key blocks
  Index workers_;
  SharedLseLow<T> low_;
  bool has_low_ = false;
  Workspace parts_;                  // [B, Hq, own blocks, P, D padded], if q is requested
  std::optional<RangeSums<T>> d_q_;  // of a head: [P, D], likewise
};

}  // namespace distributed

FOVEA_NAMESPACE_END
