// SPDX-License-Identifier: MIT
/// \file
/// Both passes of softmax attention over a sharded sequence.
#pragma once

#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/distributed/softmax/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The arguments of a forward pass of softmax attention over a pattern, for tensors of T.
template <class T>
using SoftmaxForwardCall =
    ShardedForwardCall<SoftmaxOperatorRef, T, SoftmaxInputs<T>, SoftmaxSaved<T>>;
/// The arguments of a backward pass.
template <class T>
using SoftmaxBackwardCall =
    ShardedBackwardCall<SoftmaxOperatorRef, T, SoftmaxInputs<T>, SoftmaxSaved<T>, SoftmaxGrads<T>,
                        SoftmaxOutGrads<T>>;

/// Computes the forward pass. \param modifier of the logits
template <class T>
CommStats softmax_forward(const SoftmaxForwardCall<T>& call,
                          const ScoreModifierArgs<Compute<T>>& modifier);
/// Computes the backward pass. \param modifier of the logits, with its derivative
template <class T>
CommStats softmax_backward(const SoftmaxBackwardCall<T>& call,
                           const ScoreModifierArgs<T>& modifier);

/// Softmax attention over a pattern in `forward`. Bias and mask [B, Hq, own rows, N], any extent
/// may be 1 (broadcast), with the rows of the rank's queries and the columns of all keys of the
/// sequence. Cost: each key and value that the rank's rows see is received once. (If rows are not
/// at the positions of their keys, as with CausalAlignment::key_length and first_positions, every
/// rank gets all rows and computes the whole call, for all operators and in `backward`.) Memory: a
/// copy of the rank's keys and values that others see, or that are seen by rows that also see
/// others', and the received ones, which `rows` keeps for the next call; all other rows read in
/// place. If blocks of the pattern see many contiguous keys, only those of two segments of
/// kKeySegment at a time, and nothing is kept.
template <class Op, class T>
requires PatternAttention<Op, T> CommStats forward(const ShardedForwardCall<Op, T>& call) {
  const SoftmaxOperatorRef op(call.op);
  return softmax_forward<T>({op, call.inputs, call.out, call.saved, call.rows, call.collective},
                            call.op.template score_modifier<Compute<T>, false>());
}

/// Softmax attention over a pattern in `backward`. d_lse [B, Hq, own rows, 1] is passed by all
/// ranks or none. The gradient of the bias has the rows of the rank's queries; it is rejected for a
/// bias with one row for all queries. That of sinks is that of the whole sequence.
///
/// Cost: 2 (3 D + 2 Dv) flops for each visible pair of the rank's own queries and keys, as in one
/// process. For pairs of two ranks 2 (4 D + 3 Dv): both ranks compute the logit and the gradient of
/// the weight. The same holds for blocks of the pattern whose rows are on several ranks, such as
/// those of long strides. grads.bias costs another forward pass.
///
/// Messages: the rank receives the keys and values that its queries see, then the queries that see
/// its keys, with out, d_out and two numbers (three with d_lse) for each. Gradients of sinks are
/// summed from range to range, kSinkSums numbers for each head. If bias or mask has a row for each
/// query, the rank also receives the remote rows that see its keys, restricted to the columns of
/// these keys.
///
/// Memory: the received rows and a copy of the rank's own, including bias and mask; their gradients
/// as well if the rank has several ranges. Bias and mask are packed for one rank at a time, and
/// address space is reserved for N x N numbers.
template <class Op, class T>
requires PatternAttention<Op, T> CommStats backward(const ShardedBackwardCall<Op, T>& call) {
  const SoftmaxOperatorRef op(call.op);
  return softmax_backward<T>(
      {op, call.inputs, call.out, call.saved, call.d_out, call.grads, call.rows, call.collective},
      call.op.template score_modifier<T, true>());
}

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/softmax.inl.hpp"
#endif
