// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of linear, delta-rule and FMM attention over a sharded sequence. Rows stay in
/// place; ranks exchange states of fixed size and, for a near field, margin rows.
#pragma once

#include <concepts>

#include "fovea/attention/linear/operator.hpp"
#include "fovea/distributed/linear/calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// An operator with a far field.
template <class Op, class T>
concept FarFieldAttention = std::derived_from<Op, LinearOperator<Op>> && std::floating_point<T>;

/// Computes linear, delta-rule or FMM attention over a sharded sequence. All ranks call it
/// together, each with its own rows. Results are bit-identical to `op.forward` over the whole
/// sequence, for any number of ranks and any layout.
/// \param op LinearAttention, DeltaRuleAttention or FmmAttention
/// \param inputs q, k, v (and beta) of this rank's rows, [B, H, own rows, D] in ascending order;
/// key lengths count keys of the whole sequence
/// \param out [B, Hq, own rows, Dv], written
/// \param saved what `op` saves, of the rank's rows
/// \param executor as in the operator's `forward`
/// \returns this rank's communication statistics
/// \throws as `forward` over softmax operators
///
/// Cost: that of the rank's rows. If causal, a state for each key head is sent at each end of a
/// range of rows, and ranks wait for each other unless there are at least as many key heads. If
/// not, the sums of the rank's segments of kLinearSegment tokens are sent, and totals received. A
/// near field costs the rows of its margins.
/// Memory: states or sums; with a near field, what `forward` over softmax operators takes.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires FarFieldAttention<Op, T> Traffic forward(const Op& op, const InputsOf<Op, T>& inputs,
                                                  Out&& out, const SavedOf<Op, T>& saved,
                                                  const Rows& rows, E&& executor = {}) {
  return LinearCalls<typename Op::template Passes<T>>::forward(
      op.template settings<T>(), fovea::detail::inputs_as<LinearFamilyInputs<T>>(inputs),
      View<T>(out), saved, rows, detail::RanksCall(op, executor));
}

/// The same, without saved state.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires FarFieldAttention<Op, T> Traffic forward(const Op& op, const InputsOf<Op, T>& inputs,
                                                  Out&& out, const Rows& rows, E&& executor = {}) {
  return forward<Op>(op, inputs, View<T>(out), SavedOf<Op, T>{}, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
