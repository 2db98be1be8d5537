// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Performer attention over a sharded sequence. Ranks exchange states and sums
/// of fixed size, and rows where ranges end inside a segment of kLinearSegment rows.
#pragma once

#include <concepts>

#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/distributed/performer_forward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Performer attention in `backward`. Cost: if causal, a state of about 2 R Dv numbers for each
/// query head is sent at each end of a range of rows, and then one for each key head back. If not,
/// sums of the rank's segments are sent and totals received, of tokens and then of rows. With the
/// gradient of the projection each state has 2 R D numbers more, and all ranks get the last ones;
/// if not causal, its sum goes over all ranges for each head. Rows of segments that span several
/// ranks are sent to the rank of their first row, and their gradients back. Memory: the rank's rows
/// twice, and states or sums; for the gradient of the projection 2 R D numbers for each head, or if
/// not causal for each head and segment of the rank.
template <std::floating_point T>
struct DistributedBackward<PerformerAttention, T> {
  /// Computes the pass.
  static CommStats backward(const PerformerAttention& op, const PerformerInputs<T>& inputs,
                            const View<const T>& out,
                            const SavedOf<PerformerAttention, T>& /*saved*/,
                            const View<const T>& d_out, const GradsOf<PerformerAttention, T>& grads,
                            const Sharding& rows, const detail::CollectiveCall& call) {
    return PerformerCalls<T>::backward(op.settings<T>(), inputs, out, d_out, grads, rows, call);
  }
};

}  // namespace distributed

FOVEA_NAMESPACE_END
