// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of softmax attention over a sequence that is spread over ranks.
#pragma once

#include "fovea/distributed/softmax/calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes the gradients of attention over a sequence that is spread over ranks, on all of them
/// together. The bits are those of `op.backward` over the whole sequence.
/// \param op, inputs as in `forward`
/// \param out, saved as `forward` wrote them, with lse
/// \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out; or
/// {.d_out = ..., .d_lse = ...}, where d_lse [B, Hq, own rows, 1] is that with respect to lse: all
/// ranks give it, or none
/// \param grads of q, k and v, of this rank's rows: those that have a tensor are written; the ranks
/// may want different ones. bias has the rows of the rank's queries. sink [Hq], which all ranks
/// want or none, is that of the whole sequence
/// \param executor as in `forward`   \returns the messages of this rank
/// \throws as `forward`, also std::invalid_argument if the gradient of a bias is asked for that has
/// one row for all queries
///
/// Cost: 2 (3 D + 2 Dv) flops for each visible pair of the rank's own rows, as in one process, and
/// 2 (4 D + 3 Dv) for others, whose logits and gradients of weights two ranks compute; also for
/// those in blocks of the pattern that no rank holds all, as those of long strides. The keys and
/// values that the rank's queries see are received, and then the queries that see its keys, with
/// out, d_out and two numbers, or three with d_lse; for sinks kSinkSums numbers of each head go
/// from range to range. Of a bias or mask that does not have one row for all queries come the rows
/// of others that see the rank's keys, in the columns of those of its keys that they see; the
/// gradient of a bias takes as much as a forward pass again. Memory: what it receives, and the
/// rank's rows once more, also of bias and mask; their gradients, too, if the rank has several
/// ranges. What comes of bias and mask is packed for one other rank at a time, and address space is
/// taken for all N x N numbers.
template <class Op, class Out, class T = Scalar<Out>, class D = SoftmaxOutGrads<T>,
          class E = Serial>
requires PatternAttention<Op, T> && std::floating_point<T> Traffic
backward(const Op& op, const InputsOf<Op, T>& inputs, const Out& out, const SavedOf<Op, T>& saved,
         const D& d_out, const GradsOf<Op, T>& grads, const Rows& rows, E&& executor = {}) {
  return SoftmaxBackwardCalls<T>::backward(op, op.template score_modifier<T, true>(), inputs,
                                           View<const T>(out), saved, detail::out_grads<T>(d_out),
                                           grads, rows, detail::RanksCall(op, executor));
}

}  // namespace distributed

FOVEA_NAMESPACE_END
