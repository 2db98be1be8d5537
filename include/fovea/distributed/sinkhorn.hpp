// SPDX-License-Identifier: MIT
/// \file
/// Sinkhorn attention over a sequence that is spread over ranks: a sorted block is a sum of all
/// blocks, so that the call is made by heads.
#pragma once

#include "fovea/attention/sinkhorn.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Both passes, for tensors of T. `forward` and `backward` document them.
template <class T>
class SinkhornCalls {
 public:
  /// \param call of the same operator
  static Traffic forward(const SinkhornAttention& op, const SinkhornInputs<T>& inputs,
                         const View<T>& out, const SoftmaxSaved<T>& saved, const Rows& rows,
                         const detail::RanksCall& call);
  /// \param call of the same operator
  static Traffic backward(const SinkhornAttention& op, const SinkhornInputs<T>& inputs,
                          const View<const T>& out, const SoftmaxSaved<T>& saved,
                          const View<const T>& d_out, const SinkhornGrads<T>& grads,
                          const Rows& rows, const detail::RanksCall& call);
};

/// Computes Sinkhorn attention over a sequence that is spread over ranks, on all of them together.
/// The bits are those of `op.forward` over the whole sequence, for any number of ranks and any
/// layout; the rows of a block may be on different ranks.
/// \param inputs q, k, v of this rank's rows, [B, H, own rows, D] in ascending order; the sorting
/// logits [B, Hk, own blocks, N / b] of the blocks whose first rows it holds (blocks_of); key
/// lengths count rows of the whole sequence
/// \param out [B, Hq, own rows, Dv], written
/// \param saved lse of the rank's rows; all ranks give it, or none
/// \param executor as in `forward` of the operator
/// \returns the messages of this rank
/// \throws as `forward` over softmax operators
///
/// Cost: a rank computes all rows of some key heads, as HeadSlices deals them; with fewer key heads
/// than ranks some ranks compute nothing. Its rows of q, k, v, out and R travel to and from the
/// other ranks' heads. Memory: three times as many numbers as its rows have, and what the operator
/// takes for its heads. **Each rank holds all rows of its heads.**
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const SinkhornAttention& op, const InputsOf<SinkhornAttention, T>& inputs,
                Out&& out, const SavedOf<SinkhornAttention, T>& saved, const Rows& rows,
                E&& executor = {}) {
  return SinkhornCalls<T>::forward(op, inputs, View<T>(out), saved, rows,
                                   detail::RanksCall(op, executor));
}

/// The same, where nothing is saved.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const SinkhornAttention& op, const InputsOf<SinkhornAttention, T>& inputs,
                Out&& out, const Rows& rows, E&& executor = {}) {
  return forward(op, inputs, View<T>(out), SavedOf<SinkhornAttention, T>{}, rows, executor);
}

/// Computes the gradients of Sinkhorn attention over a sequence that is spread over ranks, on all
/// of them together. The bits are those of `op.backward` over the whole sequence.
/// \param inputs as in `forward`
/// \param out, saved as `forward` wrote them, with lse
/// \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out
/// \param grads of q, k and v, of this rank's rows, and of the sorting logits, of its blocks: those
/// that have a tensor are written; all ranks want the same ones
/// \param executor as in `forward`
/// \returns the messages of this rank
/// \throws as `forward`
/// Cost, memory: by heads, as `forward`; out, lse, d_out and the gradients travel, too.
template <class Out, class D, class E = Serial, class T = Scalar<Out>>
Traffic backward(const SinkhornAttention& op, const InputsOf<SinkhornAttention, T>& inputs,
                 const Out& out, const SavedOf<SinkhornAttention, T>& saved, const D& d_out,
                 const GradsOf<SinkhornAttention, T>& grads, const Rows& rows, E&& executor = {}) {
  return SinkhornCalls<T>::backward(op, inputs, View<const T>(out), saved, View<const T>(d_out),
                                    grads, rows, detail::RanksCall(op, executor));
}

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/sinkhorn.inl.hpp"
#endif
