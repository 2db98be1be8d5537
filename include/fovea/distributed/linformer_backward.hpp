// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Linformer attention over a sequence that is spread over ranks. What travels
/// is the gradients of the projected keys and values, and rows where ranges end within a block of
/// queries; those of tokens and of columns of E and F are made where these are.
#pragma once

#include "fovea/distributed/linformer_forward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The backward pass, for tensors of T. `backward` documents it.
template <class T>
class LinformerBackwardCalls {
 public:
  /// \param call of the same operator
  static Traffic backward(const LinformerAttention& op, const LinformerInputs<T>& inputs,
                          const View<const T>& out, const LinformerSaved<T>& saved,
                          const View<const T>& d_out, const LinformerGrads<T>& grads,
                          const Rows& rows, const detail::RanksCall& call);
};

/// Computes the gradients of Linformer attention over a sequence that is spread over ranks, on all
/// of them together. The bits are those of `op.backward` over the whole sequence.
/// \param op, inputs as in `forward`
/// \param out, saved as `forward` wrote them, with lse; unless all ranks have the projected keys
/// and values, or none, the call is refused \param d_out [B, Hq, own rows, Dv]: the gradient of the
/// loss with respect to out \param grads of this rank's rows, and of the columns of E and F that
/// these meet: those that have a tensor are written; the ranks may want different ones \param
/// executor as in `forward`   \returns the messages of this rank \throws as `forward`
///
/// Cost: that of the rank's rows. The gradients of the projected keys and values, B Hk P (D + Dv)
/// numbers, are sent at each end of a range of rows once for each query head of a key head, and
/// then to all ranks: a block of keys of a head at a time, as in `forward`. Where a range does not
/// begin at a multiple of block_rows of the sequence, fewer rows than that travel, and their
/// gradients back. If nothing was saved, the projected keys
/// and values travel as in `forward`.
/// Memory: the rank's rows of queries twice, five times the projected keys and values, and what
/// each block of queries adds to their gradients.
template <class Out, class D, class E = Serial, class T = Scalar<Out>>
requires std::floating_point<T> Traffic
backward(const LinformerAttention& op, const InputsOf<LinformerAttention, T>& inputs,
         const Out& out, const SavedOf<LinformerAttention, T>& saved, const D& d_out,
         const GradsOf<LinformerAttention, T>& grads, const Rows& rows, E&& executor = {}) {
  return LinformerBackwardCalls<T>::backward(op, inputs, View<const T>(out), saved,
                                             View<const T>(d_out), grads, rows,
                                             detail::RanksCall(op, executor));
}

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/linformer_backward.inl.hpp"
#endif
