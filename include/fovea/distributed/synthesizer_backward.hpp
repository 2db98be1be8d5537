// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of the forms of the Synthesizer over a sequence that is spread over ranks,
/// whose weights have rows by position: that of softmax attention over what they make of their
/// inputs.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "fovea/distributed/softmax/backward_pass.hpp"
#include "fovea/distributed/synthesizer/dense_gradients.hpp"
#include "fovea/distributed/synthesizer/gradients.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One backward pass.
template <class Op, class T>
class SynthesizerBackwardPass {
 public:
  /// Takes all memory, on every rank, and prepares all messages.
  /// \param inputs, out, saved, d_out, grads those of this rank, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SynthesizerBackwardPass(const Op& op, const InputsOf<Op, T>& inputs, const View<const T>& out,
                          const SoftmaxSaved<T>& saved, const View<const T>& d_out,
                          const GradsOf<Op, T>& grads, const Rows& rows,
                          const ExecutorRef& executor)
      : softmax_(op.softmax()),
        made_(inputs, rows, executor),
        grads_(made_, inputs, grads, rows, executor),
        pass_(softmax_, {}, made_.inputs(), out, saved, d_out, grads_.wanted(), rows) {
    pass_.reserve(executor);
  }

  /// The messages of this rank.
  Traffic traffic() const { return pass_.traffic() + grads_.traffic(); }

  /// As that of softmax attention.
  std::uint64_t plan_number() const { return pass_.plan_number(); }

  /// Sends, receives and computes. All messages are exchanged even if computing throws.
  /// \returns what computing has thrown, or null
  std::exception_ptr run(const ExecutorRef& executor) {
    return grads_.finish(pass_.run(executor), executor);
  }

 private:
  using Softmax = fovea::detail::SynthesizedSoftmax<Op>;

  Softmax softmax_;
  detail::SynthesizerRows<Op, T> made_;
  detail::SynthesizerGradients<Op, T> grads_;
  SoftmaxBackwardPass<T> pass_;
};

/// Computes the gradients of a form of the Synthesizer over a sequence that is spread over ranks,
/// on all of them together. The bits are those of `op.backward` over the whole sequence. \param op,
/// inputs as in `forward`   \param out, saved as `forward` wrote them, with lse \param d_out [B,
/// Hq, own rows, Dv]: the gradient of the loss with respect to out \param grads r, r1, r2, x and v
/// of this rank's rows: those that have a tensor are written; the ranks may want different ones.
/// w1, b1, w2 and b2, each of which all ranks want or none, are those of the whole sequence \param
/// executor as in `forward`   \returns the messages of this rank \throws as `forward`; also
/// std::invalid_argument if the gradient of w1 or b1 is asked for, and a range of rows does not
/// begin at a multiple of kChain
///
/// Cost, messages, memory: as `backward` over softmax operators, whose bias is R. A factor of all
/// sequences also takes [B, H, own rows, r] for its gradient. Of the dense form the sums that the
/// gradients of W1 and b1 are go from range to range, once for each sequence if all have the same
/// weights, and then to all ranks; so do the columns of those of W2 and b2, for which it takes [1
/// or B, Hk, N, M + 1], as much as these are.
template <class Op, class Out, class D, class E = Serial, class T = Scalar<Out>>
requires Synthesizer<Op> && std::floating_point<T> Traffic
backward(const Op& op, const InputsOf<Op, T>& inputs, const Out& out, const SavedOf<Op, T>& saved,
         const D& d_out, const GradsOf<Op, T>& grads, const Rows& rows, E&& executor = {}) {
  const View<const T> from(out);
  const View<const T> d_from(d_out);
  using Gradients = detail::SynthesizerGradients<Op, T>;
  const std::string text = detail::synthesizer_text(Op::name(), ".backward", inputs, rows);
  return detail::run_call(
      rows, op, text + Gradients::text(grads),
      [&] {
        detail::check_synthesizer(Op::name(), inputs, rows, [&](const InputsOf<Op, T>& own) {
          op.check_backward_tensors(own, from, saved, d_from, grads, rows.count());
        });
        Gradients::check(grads, rows);
      },
      executor,
      [&](auto& threads) {
        return std::make_unique<SynthesizerBackwardPass<Op, T>>(op, inputs, from, saved, d_from,
                                                                grads, rows, threads);
      });
}

}  // namespace distributed

FOVEA_NAMESPACE_END
