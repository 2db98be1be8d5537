// SPDX-License-Identifier: MIT
/// \file
/// Longformer attention over a sharded sequence. If global rows have separate projections, they are
/// a second pass with its own exchange.
#pragma once

#include <concepts>

#include "fovea/attention/longformer.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/distributed/softmax/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The forward pass, for tensors of T. See `forward`.
template <class T>
class LongformerCalls {
 public:
  /// \param call of the same operator
  static Traffic forward(const LongformerAttention& op, const LongformerInputs<T>& inputs,
                         const View<T>& out, const SoftmaxSaved<T>& saved, const Rows& rows,
                         const detail::RanksCall& call);
};

/// The backward pass, for tensors of T. See `backward`.
template <class T>
class LongformerBackwardCalls {
 public:
  /// \param call of the same operator
  static Traffic backward(const LongformerAttention& op, const LongformerInputs<T>& inputs,
                          const View<const T>& out, const SoftmaxSaved<T>& saved,
                          const SoftmaxOutGrads<T>& d_out, const LongformerGrads<T>& grads,
                          const Rows& rows, const detail::RanksCall& call);
};

/// Computes Longformer attention over a sharded sequence. All ranks call it together, each with its
/// own rows. Results are bit-identical to `op.forward` over the whole sequence, for any number of
/// ranks and any layout.
/// \param inputs this rank's rows, in ascending order; global positions are positions in the
/// sequence; key lengths, bias and mask are as in `forward` over softmax operators
/// \param out [B, Hq, own rows, Dv], written   \param saved lse of the rank's rows
/// \param executor as in the operator's `forward`
/// \returns this rank's communication statistics
/// \throws as `forward` over softmax operators
///
/// Cost: that of the rank's rows; global rows see every key. Keys and values that the rank's rows
/// see are received; a rank with global rows receives all (of global_k and global_v, if given).
/// Memory: as `forward` over softmax operators, twice if global_q is given.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const LongformerAttention& op, const InputsOf<LongformerAttention, T>& inputs,
                Out&& out, const SavedOf<LongformerAttention, T>& saved, const Rows& rows,
                E&& executor = {}) {
  return LongformerCalls<T>::forward(op, inputs, View<T>(out), saved, rows,
                                     detail::RanksCall(op, executor));
}

/// The same, without saved state.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const LongformerAttention& op, const InputsOf<LongformerAttention, T>& inputs,
                Out&& out, const Rows& rows, E&& executor = {}) {
  return forward(op, inputs, View<T>(out), SoftmaxSaved<T>{}, rows, executor);
}

/// Computes the gradients of Longformer attention over a sharded sequence. Collective. Results are
/// bit-identical to `op.backward` over the whole sequence.
/// \param inputs as in `forward`   \param out, saved as `forward` wrote them, with lse
/// \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out; or with d_lse,
/// as in `backward` over softmax operators
/// \param grads of this rank's rows: those with a tensor are written; ranks may request different
/// ones. sink is as in `backward` over softmax operators
/// \param executor as in `forward`   \returns this rank's communication statistics
/// \throws as `backward` over softmax operators, and as `op.backward` does
///
/// Cost, memory: as `backward` over softmax operators, for each set of projections.
template <class Out, class T = Scalar<Out>, class D = SoftmaxOutGrads<T>, class E = Serial>
requires std::floating_point<T> Traffic
backward(const LongformerAttention& op, const InputsOf<LongformerAttention, T>& inputs,
         const Out& out, const SavedOf<LongformerAttention, T>& saved, const D& d_out,
         const GradsOf<LongformerAttention, T>& grads, const Rows& rows, E&& executor = {}) {
  return LongformerBackwardCalls<T>::backward(op, inputs, View<const T>(out), saved,
                                              detail::out_grads<T>(d_out), grads, rows,
                                              detail::RanksCall(op, executor));
}

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/longformer.inl.hpp"
#endif
