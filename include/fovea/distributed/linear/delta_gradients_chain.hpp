// SPDX-License-Identifier: MIT
/// \file
/// The gradients of the delta rule over ranks: states go up the chain of ranges, and their
/// gradients come down.
#pragma once

#include <algorithm>
#include <exception>
#include <vector>

#include "fovea/attention/linear/backward_call.hpp"
#include "fovea/distributed/messages/state_chain.hpp"
#include "fovea/distributed/segments/segment_rows.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The gradients of the delta rule of one backward pass, whose tensors are those of SegmentRows.
/// Every token is seen: there are no key lengths.
template <class T, class Field>
class DeltaGradientsChain {
 public:
  /// What the parts of the pass have in common.
  using Call = LinearBackwardCall<T, Field>;

  /// Takes all memory: what the first step leaves for the second is kept for all heads.
  /// \param call, segments must outlive this object   \param accumulate whether to add to the
  /// gradients
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class E>
  DeltaGradientsChain(const Call& call, const SegmentRows<T>& segments, const Communicator& ranks,
                      bool accumulate, E&& executor)
      : call_(call),
        accumulate_(accumulate),
        workers_((std::max)(worker_count(executor, call.key_heads()), Index{1})),
        rows_(static_cast<std::size_t>(workers_ * call.group())),
        up_(ranks, segments.layout(), ChainWay::up, call.key_heads(), state_bytes(), workers_),
        down_(ranks, segments.layout(), ChainWay::down, call.key_heads(), state_bytes(), workers_) {
    for (const Range& range : segments.layout().of(ranks.rank())) {
      const Index tokens = range.end - range.begin;
      slots_.push_back(padded_row<T>(
          delta_grad_scratch<T>(tokens, call.group(), call.shape.width, call.shape.value_width)));
      scratch_.push_back(
          memory_of(executor).take(call.key_heads(), slots_.back() * Index{sizeof(T)}));
    }
  }
  DeltaGradientsChain(const DeltaGradientsChain&) = delete;
  DeltaGradientsChain& operator=(const DeltaGradientsChain&) = delete;

  /// The messages of this rank.
  Traffic traffic() const { return up_.traffic() + down_.traffic(); }

  /// Writes the gradients of the rows of this rank's segments. All messages are exchanged even if
  /// computing throws. \returns what computing has thrown, or null
  template <class E>
  std::exception_ptr run(E&& executor) {
    std::exception_ptr error = up_.run([&](const LinkOfRows& link, Index first, Index end) {
      step(DeltaGradSteps::up, up_, link, first, end, executor);
    });
    const std::exception_ptr later = down_.run([&](const LinkOfRows& link, Index first, Index end) {
      if (!error) step(DeltaGradSteps::down, down_, link, first, end, executor);
    });
    return error ? error : later;
  }

 private:
  Index carried() const {
    return delta_grad_carried<T>(call_.shape.width, call_.shape.value_width);
  }
  Index state_bytes() const { return carried() * Index{sizeof(T)}; }

  /// One step of a range, for the heads [first, end).
  template <class E>
  void step(DeltaGradSteps steps, StateChain& chain, const LinkOfRows& link, Index first, Index end,
            E&& executor) {
    const auto number = static_cast<std::size_t>(link.number);
    const bool begins = link.before < 0;  // on the way of the chain
    for_each_task(executor, end - first, [&](Index task, Index worker) {
      const Index head = first + task;
      T* const state = chain.template state<T>(head);
      if (begins) std::fill_n(state, carried(), T(0));
      DeltaGradArgs<T> args = call_.delta_args(call_.sequences[head / call_.shape.key_heads],
                                               head % call_.shape.key_heads, link.rows, link.rows,
                                               rows_.data() + worker * call_.group());
      args.accumulate = accumulate_;
      args.steps = steps;
      args.carried = state;
      args.scratch = scratch_[number].template data<T>() + head * slots_[number];
      LinearGradKernels<T>{}.delta(args);
    });
  }

  const Call& call_;
  bool accumulate_;
  Index workers_;
  std::vector<LinearGradRows<T>> rows_;  // [workers, group]
  std::vector<Index> slots_;             // of each range
  std::vector<Workspace> scratch_;       // of each range [key heads, slot]
  StateChain up_;
  StateChain down_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
