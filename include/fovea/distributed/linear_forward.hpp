// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of linear, delta-rule and FMM attention over a sharded sequence. Rows stay in
/// place; ranks exchange states of fixed size and, for a near field, margin rows.
#pragma once

#include <concepts>

#include "fovea/attention/linear/operator.hpp"
#include "fovea/distributed/linear/calls.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// An operator with a far field.
template <class Op, class T>
concept FarFieldAttention = std::derived_from<Op, LinearOperator<Op>> && std::floating_point<T>;

/// Linear, delta-rule and FMM attention in `forward`.
/// Cost: if causal, a state for each key head is sent at each end of a range of rows, and ranks
/// wait for each other unless there are at least as many key heads. If not, the sums of the rank's
/// segments of kLinearSegment tokens are sent, and totals received. A near field costs the rows of
/// its margins. Memory: states or sums; with a near field, what softmax attention takes.
template <class Op, class T>
requires FarFieldAttention<Op, T>
struct DistributedForward<Op, T> {
  /// Computes the pass.
  static CommStats forward(const Op& op, const InputsOf<Op, T>& inputs, const View<T>& out,
                           const SavedOf<Op, T>& saved, const Sharding& rows,
                           const detail::CollectiveCall& call) {
    return LinearCalls<typename Op::template Passes<T>>::forward(
        op.template settings<T>(), fovea::detail::inputs_as<LinearFamilyInputs<T>>(inputs), out,
        saved, rows, call);
  }
};

}  // namespace distributed

FOVEA_NAMESPACE_END
