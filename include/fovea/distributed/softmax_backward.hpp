// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of softmax attention over a sharded sequence.
#pragma once

#include "fovea/distributed/softmax/calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes the gradients of attention over a sharded sequence. Collective. Results are
/// bit-identical to `op.backward` over the whole sequence.
/// \param op, inputs as in `forward`
/// \param out, saved as `forward` wrote them, with lse
/// \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out; or {.d_out =
/// ..., .d_lse = ...}, where d_lse [B, Hq, own rows, 1] is that with respect to lse: all ranks pass
/// it, or none
/// \param grads of q, k and v, of this rank's rows: those with a tensor are written; ranks may
/// request different ones. bias has the rows of the rank's queries. sink [Hq], requested by all
/// ranks or none, is that of the whole sequence
/// \param executor as in `forward`   \returns this rank's communication statistics
/// \throws as `forward`, also std::invalid_argument if grads.bias is given for a bias that has one
/// row for all queries
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
