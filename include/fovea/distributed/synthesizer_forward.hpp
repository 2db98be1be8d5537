// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of the forms of the Synthesizer over a sequence that is spread over ranks: that
/// of softmax attention over what they make of their inputs.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

#include "fovea/distributed/messages/whole_call.hpp"
#include "fovea/distributed/softmax/forward_pass.hpp"
#include "fovea/distributed/synthesizer/call.hpp"
#include "fovea/distributed/synthesizer/dense_rows.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One forward pass.
template <class Op, class T>
class SynthesizerForwardPass {
 public:
  /// Takes all memory, on every rank, and prepares all messages.
  /// \param inputs, out, saved those of this rank, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SynthesizerForwardPass(const Op& op, const InputsOf<Op, T>& inputs, const View<T>& out,
                         const SoftmaxSaved<T>& saved, const Rows& rows,
                         const ExecutorRef& executor)
      : softmax_(op.softmax()),
        made_(inputs, rows, executor),
        pass_(softmax_, {}, made_.inputs(), out, saved, rows) {
    pass_.reserve(executor);
  }

  /// The messages of this rank.
  Traffic traffic() const { return pass_.traffic(); }

  /// As that of softmax attention.
  std::uint64_t plan_number() const { return pass_.plan_number(); }

  /// Sends, receives and computes. \returns what computing has thrown, or null
  std::exception_ptr run(const ExecutorRef& executor) { return pass_.run(executor); }

 private:
  using Softmax = fovea::detail::SynthesizedSoftmax<Op>;

  Softmax softmax_;
  detail::SynthesizerRows<Op, T> made_;
  SoftmaxForwardPass<T> pass_;
};

/// Computes a form of the Synthesizer over a sequence that is spread over ranks, on all of them
/// together; every rank calls it with its own rows. The bits are those of `op.forward` over the
/// whole sequence, for any number of ranks and any layout.
/// \param op RandomSynthesizerAttention, FactorisedSynthesizerAttention or
/// DenseSynthesizerAttention
/// \param inputs v [B, Hk, own rows, Dv] and what has rows by position, r, r1, r2 or x, of this
/// rank's rows, in ascending order; r [1 or B, Hq, own rows, N] has the columns of all of them. W1,
/// b1, W2 and b2 are whole on every rank. Key lengths count keys of the whole sequence
/// \param out [B, Hq, own rows, Dv], written
/// \param saved lse of the rank's rows, written if it has a tensor
/// \param executor as in `forward` of the operator
/// \returns the messages of this rank
/// \throws as `forward` over softmax operators
///
/// Cost: that of the rank's rows, and each value that they see received once, with its row of R2
/// or, of the dense form, its column of W2 and b2, for each sequence of the batch. Memory: as
/// `forward` over softmax operators, for the dense form also [B, Hq, own rows, M + 1] and [1 or B,
/// Hk, own rows, M + 1].
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires Synthesizer<Op> Traffic forward(const Op& op, const InputsOf<Op, T>& inputs, Out&& out,
                                         const SavedOf<Op, T>& saved, const Rows& rows,
                                         E&& executor = {}) {
  const View<T> to(out);
  return detail::run_call(
      rows, op, detail::synthesizer_text(Op::name(), ".forward", inputs, rows),
      [&] {
        detail::check_synthesizer(Op::name(), inputs, rows, [&](const InputsOf<Op, T>& own) {
          op.check_tensors(own, to, saved, rows.count());
        });
      },
      executor,
      [&](auto& threads) {
        return std::make_unique<SynthesizerForwardPass<Op, T>>(op, inputs, to, saved, rows,
                                                               threads);
      });
}

/// The same, where nothing is saved.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires Synthesizer<Op> Traffic forward(const Op& op, const InputsOf<Op, T>& inputs, Out&& out,
                                         const Rows& rows, E&& executor = {}) {
  return forward<Op>(op, inputs, View<T>(out), SoftmaxSaved<T>{}, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
