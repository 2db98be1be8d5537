// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of Performer attention over a sharded sequence. Ranks exchange states with
/// their running references, or sums and references; and rows of segments that span several ranks.
#pragma once

#include <concepts>

#include "fovea/attention/performer.hpp"
#include "fovea/distributed/linear/performer_calls.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Performer attention in `forward`.
/// Cost: if causal, a state of about (4 Dv + 100) R numbers for each key head is sent at each end
/// of a range of rows, and ranks wait for each other unless there are at least as many key heads.
/// If not, the sums of the rank's segments of kLinearSegment tokens are sent, and totals and R
/// references received. Memory: states or sums.
template <std::floating_point T>
struct DistributedForward<PerformerAttention, T> {
  /// Computes the pass.
  static CommStats forward(const PerformerAttention& op, const PerformerInputs<T>& inputs,
                           const View<T>& out, const SavedOf<PerformerAttention, T>& /*saved*/,
                           const Sharding& rows, const detail::CollectiveCall& call) {
    return PerformerCalls<T>::forward(op.settings<T>(), inputs, out, rows, call);
  }
};

}  // namespace distributed

FOVEA_NAMESPACE_END
