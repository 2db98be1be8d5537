// SPDX-License-Identifier: MIT
/// \file
/// Reformer attention over a sequence that is spread over ranks: which rows see each other is known
/// when all are sorted, so that the call is made by heads.
#pragma once

#include "fovea/attention/reformer.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Both passes, for tensors of T. `forward` and `backward` document them.
template <class T>
class ReformerCalls {
 public:
  /// \param call of the same operator
  static Traffic forward(const ReformerAttention& op, const ReformerInputs<T>& inputs,
                         const View<T>& out, const ReformerSaved<T>& saved, const Rows& rows,
                         const detail::RanksCall& call);
  /// \param call of the same operator
  static Traffic backward(const ReformerAttention& op, const ReformerInputs<T>& inputs,
                          const View<const T>& out, const ReformerSaved<T>& saved,
                          const View<const T>& d_out, const ReformerGrads<T>& grads,
                          const Rows& rows, const detail::RanksCall& call);
};

/// Computes Reformer attention over a sequence that is spread over ranks, on all of them together.
/// The bits are those of `op.forward` over the whole sequence, for any number of ranks and any
/// layout; the rows of a chunk may be on different ranks.
/// \param inputs qk and v of this rank's rows, [B, H, own rows, D] in ascending order; the
/// projection, which is the same on all ranks; key lengths count rows of the whole sequence
/// \param out [B, H, own rows, Dv], written
/// \param saved lse and round_lse of the rank's rows; all ranks give the same ones
/// \param executor as in `forward` of the operator
/// \returns the messages of this rank
/// \throws as `forward` over softmax operators
///
/// Cost: a rank computes all rows of some heads, as HeadSlices deals them; with fewer heads than
/// ranks some ranks compute nothing. Its rows of qk, v and out travel to and from the other ranks'
/// heads. Memory: three times as many numbers as its rows have, and what the operator takes for
/// its heads. **Each rank holds all rows of its heads.**
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const ReformerAttention& op, const InputsOf<ReformerAttention, T>& inputs,
                Out&& out, const SavedOf<ReformerAttention, T>& saved, const Rows& rows,
                E&& executor = {}) {
  return ReformerCalls<T>::forward(op, inputs, View<T>(out), saved, rows,
                                   detail::RanksCall(op, executor));
}

/// The same, where nothing is saved.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const ReformerAttention& op, const InputsOf<ReformerAttention, T>& inputs,
                Out&& out, const Rows& rows, E&& executor = {}) {
  return forward(op, inputs, View<T>(out), SavedOf<ReformerAttention, T>{}, rows, executor);
}

/// Computes the gradients of Reformer attention over a sequence that is spread over ranks, on all
/// of them together. The bits are those of `op.backward` over the whole sequence.
/// \param inputs as in `forward`
/// \param out, saved as `forward` wrote them
/// \param d_out [B, H, own rows, Dv]: the gradient of the loss with respect to out
/// \param grads of qk and v, of this rank's rows: those that have a tensor are written; all ranks
/// want the same ones, and give the same members of `saved`
/// \param executor as in `forward`
/// \returns the messages of this rank
/// \throws as `forward`
/// Cost, memory: by heads, as `forward`; out, d_out and the gradients travel, too.
template <class Out, class DOut, class E = Serial, class T = Scalar<Out>>
Traffic backward(const ReformerAttention& op, const InputsOf<ReformerAttention, T>& inputs,
                 const Out& out, const SavedOf<ReformerAttention, T>& saved, const DOut& d_out,
                 const GradsOf<ReformerAttention, T>& grads, const Rows& rows, E&& executor = {}) {
  return ReformerCalls<T>::backward(op, inputs, View<const T>(out), saved, View<const T>(d_out),
                                    grads, rows, detail::RanksCall(op, executor));
}

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/reformer.inl.hpp"
#endif
