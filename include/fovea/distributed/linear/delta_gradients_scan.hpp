// SPDX-License-Identifier: MIT
/// \file
/// The distributed gradients of the delta rule: states are passed up the ranges, and their
/// gradients down (a pipelined scan).
#pragma once

#include <algorithm>
#include <exception>
#include <vector>

#include "fovea/attention/linear/backward_call.hpp"
#include "fovea/distributed/linear/open_chunk.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/messages/pipelined_scan.hpp"
#include "fovea/distributed/segments/segment_rows.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The gradients of the delta rule of one backward pass, with the tensors of SegmentRows. The rows
/// of the last chunk of tokens may be read on ranks with later rows.
template <class T, class Field>
class DeltaGradientsScan final : public RankPass {
 public:
  /// The state that the parts of the pass share.
  using Call = LinearBackwardCall<T, Field>;

  /// Allocates all memory: results of the first step are kept for all heads.
  /// \param call, segments must outlive this object   \param accumulate whether to add to the
  /// gradients
  /// \param wants_products whether `add_products` will be called
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  DeltaGradientsScan(const Call& call, const SegmentRows<T>& segments, const Communicator& ranks,
                     bool accumulate, bool wants_products, const ExecutorRef& executor)
      : call_(call),
        ranks_(ranks),
        accumulate_(accumulate),
        workers_((std::max)(worker_count(executor, call.key_heads()), Index{1})),
        rows_(static_cast<std::size_t>(workers_ * call.group())),
        up_(ranks, segments.layout(), ScanDirection::up, call.key_heads(), state_bytes(), workers_),
        down_(ranks, segments.layout(), ScanDirection::down, call.key_heads(), state_bytes(),
              workers_),
        found_(static_cast<std::size_t>(wants_products ? call.row_heads() : 0)),
        found_type_(detail::MpiType::row(ranks, found_bytes())) {
    for (const Range& range : segments.layout().of(ranks.rank())) {
      const Index tokens = range.end - range.begin;
      slots_.push_back(padded_row<T>(
          delta_grad_scratch<T>(tokens, call.group(), call.shape.width, call.shape.value_width)));
      scratch_.push_back(
          memory_of(executor).take(call.key_heads(), slots_.back() * Index{sizeof(T)}));
    }
  }

  /// Adds the sums over batch and rows of <weight d_out_i, far_i>, as in a single-process pass, to
  /// products [Hq]. \pre run was called, and products were requested
  void add_products(std::vector<double>& products) const {
    for (std::size_t n = 0; n < found_.size(); ++n) {
      products[n % products.size()] += static_cast<double>(found_[n]);
    }
  }

  /// Writes the gradients of the rows of this rank's segments.
  std::exception_ptr run(const ExecutorRef& executor) override {
    std::exception_ptr error =
        up_.run(executor, [&](const ScanStep& scan_step, Index head, Index worker) {
          step(DeltaGradSteps::up, up_, scan_step, head, worker);
        });
    const std::exception_ptr later =
        down_.run(executor, [&](const ScanStep& scan_step, Index head, Index worker) {
          if (!error) step(DeltaGradSteps::down, down_, scan_step, head, worker);
        });
    if (down_.end_rank() >= 0 && !found_.empty()) give_products();
    return error ? error : later;
  }

 private:
  Index carried() const {
    return delta_grad_carried<T>(call_.group(), call_.shape.width, call_.shape.value_width,
                                 !call_.inputs.key_lengths.empty());
  }
  Index state_bytes() const { return carried() * Index{sizeof(T)}; }
  Index found_bytes() const { return static_cast<Index>(found_.size() * sizeof(T)); }

  DeltaGradCarry<T> state_down(PipelinedScan& scan, Index head) const {
    return {scan.template state<T>(head), call_.group(), call_.shape.width,
            call_.shape.value_width};
  }

  /// Broadcasts the state carried to the first row.
  void give_products() {
    for (Index head = 0; head < call_.key_heads() && ranks_.rank() == down_.end_rank(); ++head) {
      if (call_.seen(call_.sequences[head / call_.shape.key_heads]) == 0) continue;
      const DeltaGradCarry<T> state = state_down(down_, head);
      for (Index g = 0; g < call_.group(); ++g) {
        found_[static_cast<std::size_t>(head * call_.group() + g)] = state.sums[2 * g];
      }
    }
    if (ranks_.rank() == down_.end_rank()) ranks_.add_sent((ranks_.size() - 1) * found_bytes());
    ranks_.wait([&] {
      ranks_.check(MPI_Bcast(found_.data(), 1, found_type_.get(), down_.end_rank(), ranks_.mpi()),
                   "MPI_Bcast");
    });
  }
  /// Some rows, and the tokens at these rows, or the open chunk before them.
  DeltaGradArgs<T> row_block_of(const Sequence& sequence, Index key_head, const Range& rows,
                                LinearGradRows<T>* query_rows) const {
    Range tokens = rows;
    DeltaLastChunk last = DeltaLastChunk::here;
    const Range open = open_chunk(sequence.key_end);
    if (!call_.inputs.key_lengths.empty() && rows.end > open.begin) {
      const bool is_here = rows.begin < open.end;
      last = is_here ? DeltaLastChunk::opens : DeltaLastChunk::earlier;
      tokens = is_here ? Range{rows.begin, open.end} : open;
    }
    DeltaGradArgs<T> args = call_.delta_args(sequence, key_head, rows, tokens, query_rows);
    args.first_position = rows.begin - tokens.begin;
    args.last_chunk = last;
    return args;
  }

  /// One step of a range, for a head.
  void step(DeltaGradSteps steps, PipelinedScan& scan, const ScanStep& scan_step, Index head,
            Index worker) {
    const Sequence sequence = call_.sequences[head / call_.shape.key_heads];
    if (call_.seen(sequence) == 0) return;
    T* const state = scan.template state<T>(head);
    const bool begins = scan_step.before < 0;  // in scan order
    if (begins) std::fill_n(state, carried(), T(0));
    LinearGradRows<T>* const own = rows_.data() + worker * call_.group();
    DeltaGradArgs<T> args =
        row_block_of(sequence, head % call_.shape.key_heads, scan_step.rows, own);
    args.accumulate = accumulate_;
    args.steps = steps;
    args.carried = state;
    const auto number = static_cast<std::size_t>(scan_step.number);
    args.scratch = scratch_[number].template data<T>() + head * slots_[number];
    for (Index g = 0; g < call_.group() && !found_.empty(); ++g) {
      own[g].d_out_times_out = state_down(scan, head).sums + 2 * g;
    }
    LinearGradKernels<T>{}.delta(args);
  }

  const Call& call_;
  const Communicator& ranks_;
  bool accumulate_;
  Index workers_;
  std::vector<LinearGradRows<T>> rows_;  // [workers, group]
  std::vector<Index> slots_;             // of each range
  std::vector<Workspace> scratch_;       // of each range [key heads, slot]
  PipelinedScan up_;
  PipelinedScan down_;
  std::vector<T> found_;  // [sequences, query heads], or none
  detail::MpiType found_type_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
