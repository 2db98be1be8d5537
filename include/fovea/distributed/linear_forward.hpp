// SPDX-License-Identifier: MIT
/// \file
/// Both passes of linear, delta-rule, FMM and Performer attention over a sharded sequence.
/// Rows stay in place; ranks exchange states of fixed size and, for a near field, margin rows.
#pragma once

#include <concepts>

#include "fovea/attention/linear/operator.hpp"
#include "fovea/attention/linear/passes.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The arguments of a forward pass.
/// \tparam Passes a LinearPasses, FmmPasses or PerformerPasses of float or double
template <class Passes>
using FarFieldForwardCall = ShardedForwardCall<typename Passes::Settings, typename Passes::Scalar,
                                               typename Passes::Inputs, typename Passes::Saved>;
/// The arguments of a backward pass.
/// \tparam Passes a LinearBackwardPasses, FmmBackwardPasses or PerformerBackwardPasses
template <class Passes>
using FarFieldBackwardCall =
    ShardedBackwardCall<typename Passes::Settings, typename Passes::Scalar, typename Passes::Inputs,
                        typename Passes::Saved, typename Passes::Grads,
                        View<const typename Passes::Scalar>>;

/// Computes the forward pass.
template <class Passes>
CommStats linear_forward(const FarFieldForwardCall<Passes>& call);
/// Computes the backward pass.
template <class Passes>
CommStats linear_backward(const FarFieldBackwardCall<Passes>& call);

/// An operator with a far field.
template <class Op, class T>
concept FarFieldAttention = std::derived_from<Op, LinearOperator<Op>> && std::floating_point<T>;

/// Linear, delta-rule, FMM and Performer attention in `forward`.
/// Cost: if causal, a state for each key head is sent at each end of a range of rows, and ranks
/// wait for each other unless there are at least as many key heads. If not, the sums of the rank's
/// segments of kLinearSegment tokens are sent, and totals received. A near field costs the rows of
/// its margins. Memory: states or sums; with a near field, what softmax attention takes.
template <class Op, class T>
requires FarFieldAttention<Op, T> CommStats forward(const ShardedForwardCall<Op, T>& call) {
  const auto op = call.op.template settings<T>();
  const auto inputs = Op::template family_inputs<T>(call.inputs);
  return linear_forward<typename Op::template Passes<T>>(
      {op, inputs, call.out, call.saved, call.rows, call.collective});
}

/// Linear, delta-rule, FMM and Performer attention in `backward`. The near field is recomputed
/// unless all ranks have saved it. Cost: if causal, a state for each key head and map is sent at
/// each end of a range of rows, upwards and then downwards. If not, sums of the rank's segments are
/// sent and totals received, of tokens and then of rows. Rows of segments that span several ranks
/// are sent to the rank of their first row, and their gradients back. Gradients of per-column
/// logits recompute the far field. Memory: the rank's rows twice, and states or sums; for such
/// logits another output of the rank's rows; with a delta rule also about (D Dv / kDeltaChunk + Dv
/// + kDeltaChunk) numbers for each of its tokens and key heads.
template <class Op, class T>
requires FarFieldAttention<Op, T> CommStats backward(const ShardedBackwardCall<Op, T>& call) {
  const auto op = call.op.template settings<T>();
  const auto inputs = Op::template family_inputs<T>(call.inputs);
  const auto grads = Op::template family_grads<T>(call.grads);
  return linear_backward<typename Op::template BackwardPasses<T>>(
      {op, inputs, call.out, call.saved, call.d_out, grads, call.rows, call.collective});
}

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/linear.inl.hpp"
#endif
