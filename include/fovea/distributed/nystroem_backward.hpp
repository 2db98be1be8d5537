// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Nystroem attention over a sequence that is spread over ranks.
#pragma once

#include "fovea/distributed/nystroem_forward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The backward pass, for tensors of T. `backward` documents it.
template <class T>
class NystroemBackwardCalls {
 public:
  /// \param call of the same operator
  static Traffic backward(const NystroemAttention& op, const NystroemInputs<T>& inputs,
                          const View<const T>& out, const NystroemSaved<T>& saved,
                          const View<const T>& d_out, const NystroemGrads<T>& grads,
                          const Rows& rows, const detail::RanksCall& call);
};

/// Computes the gradients of Nystroem attention over a sequence that is spread over ranks, on all
/// of them together. The bits are those of `op.backward` over the whole sequence.
/// \param inputs as in `forward`   \param out [B, Hq, own rows, Dv] as `forward` wrote it
/// \param saved lse as `forward` wrote it; what landmarks attend to is computed again unless both
/// tensors of them are given, by all ranks or by none
/// \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out
/// \param grads of this rank's rows: those that have a tensor are written; the ranks may want
/// different ones
/// \param executor as in `forward`   \returns the messages of this rank
/// \throws as `forward`
///
/// Cost: that of the rank's rows, and 30 m^3 flops a step for each head on every rank. What travels
/// is that of the forward pass (of the landmarks, without the softmax over keys if that is saved),
/// of LunaUnpack's backward pass to m keys of each query head, and of LunaPack's.
/// Memory: the rank's rows twice, and what these two passes take.
template <class Out, class D, class E = Serial, class T = Scalar<Out>>
requires std::floating_point<T> Traffic
backward(const NystroemAttention& op, const InputsOf<NystroemAttention, T>& inputs, const Out& out,
         const SavedOf<NystroemAttention, T>& saved, const D& d_out,
         const GradsOf<NystroemAttention, T>& grads, const Rows& rows, E&& executor = {}) {
  return NystroemBackwardCalls<T>::backward(op, inputs, View<const T>(out), saved,
                                            View<const T>(d_out), grads, rows,
                                            detail::RanksCall(op, executor));
}

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/nystroem_backward.inl.hpp"
#endif
