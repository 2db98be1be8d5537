// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of attention to gathered keys over a sharded sequence. The gradients of
/// queries need the keys that they list; those of keys need the queries that list them. Both are
/// exchanged, and nothing is reduced across ranks.
#pragma once

#include <concepts>

#include "fovea/distributed/indexed/calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes the gradients of attention to gathered keys over a sharded sequence. Collective.
/// Results are bit-identical to `op.backward` over the whole sequence.
/// \param inputs as in `forward`
/// \param out, saved as `forward` wrote them, with lse
/// \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out
/// \param grads of q, k and v, of this rank's rows: those with a tensor are written; ranks may
/// request different ones
/// \param executor as in `forward`
/// \returns this rank's communication statistics
/// \throws as `forward`
///
/// Cost: the logits and gradients of weights are computed for queries and for keys once each. Rows
/// that list another rank's keys are sent there, with their lists, and the keys are sent back.
/// Memory: the rank's rows and lists twice, and what it receives twice.
template <class Out, class D, class E = Serial, class T = Scalar<Out>>
requires std::floating_point<T> Traffic
backward(const IndexedAttention& op, const InputsOf<IndexedAttention, T>& inputs, const Out& out,
         const SavedOf<IndexedAttention, T>& saved, const D& d_out,
         const GradsOf<IndexedAttention, T>& grads, const Rows& rows, E&& executor = {}) {
  return IndexedBackwardCalls<T>::backward(op, inputs, View<const T>(out), saved,
                                           View<const T>(d_out), grads, rows,
                                           detail::RanksCall(op, executor));
}

}  // namespace distributed

FOVEA_NAMESPACE_END
