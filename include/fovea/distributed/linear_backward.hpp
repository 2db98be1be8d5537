// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of linear, delta-rule and FMM attention over a sharded sequence. Ranks
/// exchange states and sums of fixed size; rows where ranges end inside a segment of kLinearSegment
/// rows; and, for a near field, margin rows.
#pragma once

#include "fovea/distributed/linear_forward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes the gradients of linear, delta-rule or FMM attention over a sharded sequence.
/// Collective. Results are bit-identical to `op.backward` over the whole sequence.
/// \param op, inputs as in `forward`
/// \param out [B, Hq, own rows, Dv] as `forward` wrote it
/// \param saved as `forward` wrote it; the near field is recomputed unless all ranks have both
/// \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out
/// \param grads of q, k, v and beta, of this rank's rows: those with a tensor are written; ranks
/// may request different ones. Gradients of the blend's logits, requested by all ranks or none, are
/// those of the whole sequence
/// \param executor as in `forward`
/// \returns this rank's communication statistics
/// \throws as `forward`
///
/// Cost: that of the rank's rows. If causal, a state for each key head and map is sent at each end
/// of a range of rows, upwards and then downwards. If not, sums of the rank's segments are sent and
/// totals received, of tokens and then of rows. Rows of segments that span several ranks are sent
/// to the rank of their first row, and their gradients back. Gradients of per-column logits
/// recompute the far field. Memory: the rank's rows twice, and states or sums; for such logits
/// another output of the rank's rows; with a delta rule also about (D Dv / kDeltaChunk + Dv +
/// kDeltaChunk) numbers for each of its tokens and key heads.
template <class Op, class Out, class D, class E = Serial, class T = Scalar<Out>>
requires FarFieldAttention<Op, T> Traffic backward(const Op& op, const InputsOf<Op, T>& inputs,
                                                   const Out& out, const SavedOf<Op, T>& saved,
                                                   const D& d_out, const GradsOf<Op, T>& grads,
                                                   const Rows& rows, E&& executor = {}) {
  return LinearBackwardCalls<typename Op::template BackwardPasses<T>>::backward(
      op.template settings<T>(), fovea::detail::inputs_as<LinearFamilyInputs<T>>(inputs),
      View<const T>(out), saved, View<const T>(d_out), Op::template family_grads<T>(grads), rows,
      detail::RanksCall(op, executor));
}

}  // namespace distributed

FOVEA_NAMESPACE_END
