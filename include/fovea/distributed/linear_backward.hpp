// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of linear, delta-rule and FMM attention over a sharded sequence. Ranks
/// exchange states and sums of fixed size; rows where ranges end inside a segment of kLinearSegment
/// rows; and, for a near field, margin rows.
#pragma once

#include "fovea/distributed/linear_forward.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Linear, delta-rule and FMM attention in `backward`. The near field is recomputed unless all
/// ranks have saved it. Cost: if causal, a state for each key head and map is sent at each end of a
/// range of rows, upwards and then downwards. If not, sums of the rank's segments are sent and
/// totals received, of tokens and then of rows. Rows of segments that span several ranks are sent
/// to the rank of their first row, and their gradients back. Gradients of per-column logits
/// recompute the far field. Memory: the rank's rows twice, and states or sums; for such logits
/// another output of the rank's rows; with a delta rule also about (D Dv / kDeltaChunk + Dv +
/// kDeltaChunk) numbers for each of its tokens and key heads.
template <class Op, class T>
requires FarFieldAttention<Op, T>
struct DistributedBackward<Op, T> {
  /// Computes the pass.
  static CommStats backward(const Op& op, const InputsOf<Op, T>& inputs, const View<const T>& out,
                            const SavedOf<Op, T>& saved, const View<const T>& d_out,
                            const GradsOf<Op, T>& grads, const Sharding& rows,
                            const detail::CollectiveCall& call) {
    return LinearBackwardCalls<typename Op::template BackwardPasses<T>>::backward(
        op.template settings<T>(), fovea::detail::inputs_as<LinearFamilyInputs<T>>(inputs), out,
        saved, d_out, Op::template family_grads<T>(grads), rows, call);
  }
};

}  // namespace distributed

FOVEA_NAMESPACE_END
