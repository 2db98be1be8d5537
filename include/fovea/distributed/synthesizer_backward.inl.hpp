// SPDX-License-Identifier: MIT
/// \file
/// Included by synthesizer_backward.hpp, where it is documented.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "fovea/distributed/softmax/backward_pass.hpp"
#include "fovea/distributed/synthesizer/dense_gradients.hpp"
#include "fovea/distributed/synthesizer/gradients.hpp"
#include "fovea/distributed/synthesizer_backward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One backward pass.
template <class Op, class T>
class SynthesizerBackwardPass final : public RankPass {
 public:
  /// Allocates all memory, on every rank, and prepares all messages.
  /// \param inputs, out, saved, d_out, grads this rank's, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SynthesizerBackwardPass(const Op& op, const InputsOf<Op, T>& inputs, const View<const T>& out,
                          const SoftmaxSaved<T>& saved, const View<const T>& d_out,
                          const GradsOf<Op, T>& grads, const Sharding& rows,
                          const ExecutorRef& executor)
      : softmax_(op.softmax()),
        logits_(inputs, rows.own(), executor, ExecutorRef().memory()),
        grads_(logits_, inputs, grads, rows, executor),
        pass_(softmax_, {}, computed_inputs(executor), out, saved, d_out, grads_.wanted(), rows) {
    pass_.reserve(executor);
  }

  /// As for softmax attention.
  std::uint64_t plan_number() const override { return pass_.plan_number(); }

  /// Sends, receives and computes. All messages are exchanged even if computing throws.
  /// \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) override {
    return grads_.finish(logits_, pass_.run(executor), executor);
  }

 private:
  /// The inputs of softmax attention, initialised before the pass.
  const SoftmaxInputs<T>& computed_inputs(const ExecutorRef& executor) {
    logits_.compute(executor);
    return logits_.inputs();
  }

  using Softmax = fovea::detail::SynthesizedSoftmax<Op>;

  Softmax softmax_;
  fovea::detail::SynthesizerLogits<Op, T> logits_;
  detail::SynthesizerRankGradients<Op, T> grads_;
  SoftmaxBackwardPass<T> pass_;
};

template <class Op, class T>
CommStats SynthesizerBackwardCalls<Op, T>::backward(
    const Op& op, const InputsOf<Op, T>& inputs, const View<const T>& out,
    const SoftmaxSaved<T>& saved, const View<const T>& d_out, const GradsOf<Op, T>& grads,
    const Sharding& rows, const detail::CollectiveCall& call) {
  using Gradients = detail::SynthesizerRankGradients<Op, T>;
  const std::string text = detail::call_text(Op::name(), ".backward", inputs, rows);
  return detail::run_call(
      rows, call, text + Gradients::text(grads),
      [&] {
        detail::check_call(Op::name(), inputs, rows, [&](const InputsOf<Op, T>& own) {
          op.check_backward(own, out, saved, d_out, grads, rows.count());
        });
        Gradients::check(grads, rows);
      },
      [&](const ExecutorRef& threads) {
        return std::make_unique<SynthesizerBackwardPass<Op, T>>(op, inputs, out, saved, d_out,
                                                                grads, rows, threads);
      });
}

#define FOVEA_SYNTHESIZER_BACKWARD_CALLS(Op, T) template class SynthesizerBackwardCalls<Op, T>;
FOVEA_IN_FLOAT_UNIT(FOVEA_SYNTHESIZER_BACKWARD_CALLS, RandomSynthesizerAttention)
FOVEA_IN_FLOAT_UNIT(FOVEA_SYNTHESIZER_BACKWARD_CALLS, FactorisedSynthesizerAttention)
FOVEA_IN_FLOAT_UNIT(FOVEA_SYNTHESIZER_BACKWARD_CALLS, DenseSynthesizerAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_SYNTHESIZER_BACKWARD_CALLS, RandomSynthesizerAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_SYNTHESIZER_BACKWARD_CALLS, FactorisedSynthesizerAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_SYNTHESIZER_BACKWARD_CALLS, DenseSynthesizerAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
