// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Performer attention over a sharded sequence. Ranks exchange states and sums
/// of fixed size, and rows where ranges end inside a segment of kLinearSegment rows.
#pragma once

#include <concepts>

#include "fovea/distributed/performer_forward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes the gradients of Performer attention over a sharded sequence. Collective. Results are
/// bit-identical to `op.backward` over the whole sequence.
/// \param op, inputs as in `forward`
/// \param out [B, Hq, own rows, Dv] as `forward` wrote it
/// \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out
/// \param grads of q, k and v, of this rank's rows: those with a tensor are written; ranks may
/// request different ones. The gradient of the projection, requested by all ranks or none, is that
/// of the whole sequence
/// \param executor as in `forward`
/// \returns this rank's communication statistics
/// \throws as `forward`
///
/// Cost: that of the rank's rows. If causal, a state of about 2 R Dv numbers per query head is sent
/// at each end of a range of rows, and then one per key head back. If not, sums of the rank's
/// segments are sent and totals received, of tokens and then of rows. With the gradient of the
/// projection each state has 2 R D numbers more, and all ranks get the last ones; if not causal,
/// its sum goes over all ranges for each head. Rows of segments that span several ranks are sent to
/// the rank of their first row, and their gradients back. Memory: the rank's rows twice, and states
/// or sums; for the gradient of the projection 2 R D numbers for each head, or if not causal for
/// each head and segment of the rank.
template <class Out, class D, class E = Serial, class T = Scalar<Out>>
requires std::floating_point<T> Traffic
backward(const PerformerAttention& op, const InputsOf<PerformerAttention, T>& inputs,
         const Out& out, const SavedOf<PerformerAttention, T>& /*saved*/, const D& d_out,
         const GradsOf<PerformerAttention, T>& grads, const Rows& rows, E&& executor = {}) {
  return PerformerCalls<T>::backward(op.settings(), inputs, View<const T>(out),
                                     View<const T>(d_out), grads, rows,
                                     detail::RanksCall(op, executor));
}

}  // namespace distributed

FOVEA_NAMESPACE_END
