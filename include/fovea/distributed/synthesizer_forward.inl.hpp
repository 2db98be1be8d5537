// SPDX-License-Identifier: MIT
/// \file
/// Included by synthesizer_forward.hpp, where it is documented.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>

#include "fovea/distributed/softmax/forward_pass.hpp"
#include "fovea/distributed/synthesizer_forward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One forward pass.
template <class Op, class T>
class SynthesizerForwardPass final : public RankPass {
 public:
  /// Allocates all memory, on every rank, and prepares all messages.
  /// \param inputs, out, saved this rank's, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SynthesizerForwardPass(const Op& op, const InputsOf<Op, T>& inputs, const View<T>& out,
                         const SoftmaxSaved<T>& saved, const Sharding& rows,
                         const ExecutorRef& executor)
      : softmax_(op.softmax()),
        logits_(inputs, rows.own(), executor, ExecutorRef().memory()),
        pass_(softmax_, {}, computed_inputs(executor), out, saved, rows) {
    pass_.reserve(executor);
  }

  /// As for softmax attention.
  std::uint64_t plan_number() const override { return pass_.plan_number(); }

  /// Sends, receives and computes. \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) override { return pass_.run(executor); }

 private:
  /// The inputs of softmax attention, initialised before the pass.
  const SoftmaxInputs<T>& computed_inputs(const ExecutorRef& executor) {
    logits_.compute(executor);
    return logits_.inputs();
  }

  using Softmax = fovea::detail::SynthesizedSoftmax<Op>;

  Softmax softmax_;
  fovea::detail::SynthesizerLogits<Op, T> logits_;
  SoftmaxForwardPass<T> pass_;
};

template <class Op, class T>
CommStats SynthesizerCalls<Op, T>::forward(const Op& op, const InputsOf<Op, T>& inputs,
                                           const View<T>& out, const SoftmaxSaved<T>& saved,
                                           const Sharding& rows,
                                           const detail::CollectiveCall& call) {
  return detail::run_call(
      rows, call, detail::call_text(Op::name(), ".forward", inputs, rows),
      [&] {
        detail::check_call(Op::name(), inputs, rows, [&](const InputsOf<Op, T>& own) {
          op.check(own, out, saved, rows.count());
        });
      },
      [&](const ExecutorRef& threads) {
        return std::make_unique<SynthesizerForwardPass<Op, T>>(op, inputs, out, saved, rows,
                                                               threads);
      });
}

#define FOVEA_SYNTHESIZER_CALLS(Op, T) template class SynthesizerCalls<Op, T>;
FOVEA_IN_FLOAT_UNIT(FOVEA_SYNTHESIZER_CALLS, RandomSynthesizerAttention)
FOVEA_IN_FLOAT_UNIT(FOVEA_SYNTHESIZER_CALLS, FactorisedSynthesizerAttention)
FOVEA_IN_FLOAT_UNIT(FOVEA_SYNTHESIZER_CALLS, DenseSynthesizerAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_SYNTHESIZER_CALLS, RandomSynthesizerAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_SYNTHESIZER_CALLS, FactorisedSynthesizerAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_SYNTHESIZER_CALLS, DenseSynthesizerAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_SYNTHESIZER_CALLS, RandomSynthesizerAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_SYNTHESIZER_CALLS, FactorisedSynthesizerAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
