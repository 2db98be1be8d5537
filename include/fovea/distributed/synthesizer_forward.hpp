// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of the forms of the Synthesizer over a sequence that is spread over ranks: that
/// of softmax attention over what they make of their inputs.
#pragma once

#include "fovea/attention/dense_synthesizer.hpp"
#include "fovea/attention/factorised_synthesizer.hpp"
#include "fovea/attention/random_synthesizer.hpp"
#include "fovea/distributed/synthesizer/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The forward pass, for tensors of T. `forward` documents it.
template <class Op, class T>
class SynthesizerCalls {
 public:
  /// \param call of the same operator
  static Traffic forward(const Op& op, const InputsOf<Op, T>& inputs, const View<T>& out,
                         const SoftmaxSaved<T>& saved, const Rows& rows,
                         const detail::RanksCall& call);
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
  return SynthesizerCalls<Op, T>::forward(op, inputs, View<T>(out), saved, rows,
                                          detail::RanksCall(op, executor));
}

/// The same, where nothing is saved.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires Synthesizer<Op> Traffic forward(const Op& op, const InputsOf<Op, T>& inputs, Out&& out,
                                         const Rows& rows, E&& executor = {}) {
  return forward<Op>(op, inputs, View<T>(out), SoftmaxSaved<T>{}, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/synthesizer_forward.inl.hpp"
#endif
