// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of Performer attention over a sharded sequence. Ranks exchange states with
/// their running references, or sums and references; and rows of segments that span several ranks.
#pragma once

#include <concepts>

#include "fovea/attention/performer.hpp"
#include "fovea/distributed/linear/performer_calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes Performer attention over a sharded sequence. All ranks call it together, each with its
/// own rows and the same projection. Results are bit-identical to `op.forward` over the whole
/// sequence, for any number of ranks and any layout.
/// \param inputs q, k and v of this rank's rows, [B, H, own rows, D] in ascending order, and the
/// projection [1, 1, R, D]; key lengths count keys of the whole sequence
/// \param out [B, Hq, own rows, Dv], written
/// \param executor as in the operator's `forward`
/// \returns this rank's communication statistics
/// \throws as `forward` over softmax operators
///
/// Cost: that of the rank's rows. If causal, a state of about (4 Dv + 100) R numbers for each key
/// head is sent at each end of a range of rows, and ranks wait for each other unless there are at
/// least as many key heads. If not, the sums of the rank's segments of kLinearSegment tokens are
/// sent, and totals and R references received. Memory: states or sums.
template <class Out, class E = Serial, class T = Scalar<Out>>
requires std::floating_point<T> Traffic forward(const PerformerAttention& op,
                                                const InputsOf<PerformerAttention, T>& inputs,
                                                Out&& out,
                                                const SavedOf<PerformerAttention, T>& /*saved*/,
                                                const Rows& rows, E&& executor = {}) {
  return PerformerCalls<T>::forward(op.settings(), inputs, View<T>(out), rows,
                                    detail::RanksCall(op, executor));
}

/// The same, without saved state.
template <class Out, class E = Serial, class T = Scalar<Out>>
requires std::floating_point<T> Traffic forward(const PerformerAttention& op,
                                                const InputsOf<PerformerAttention, T>& inputs,
                                                Out&& out, const Rows& rows, E&& executor = {}) {
  return forward(op, inputs, View<T>(out), SavedOf<PerformerAttention, T>{}, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
