// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Smart Bird attention over a sequence that is spread over ranks: that over
/// the lists of chosen keys.
#pragma once

#include <concepts>

#include "fovea/distributed/smart_bird/calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes the gradients of Smart Bird attention over a sequence that is spread over ranks, on all
/// of them together. The bits are those of `op.backward` over the whole sequence.
/// \param inputs as in `forward`
/// \param out, saved as `forward` wrote them, with lse and the chosen keys
/// \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out
/// \param grads of q, k and v, of this rank's rows: those that have a tensor are written; the ranks
/// may want different ones
/// \param executor as in `forward`
/// \returns the messages of this rank
/// \throws as `forward`; std::invalid_argument also if the chosen keys are missing, or no lists of
/// keys
///
/// Cost: the logits and gradients of weights are computed for queries and for keys once each. The
/// rows that have chosen keys of another rank go there, and the chosen keys come to them.
/// Memory: the rank's rows twice, and what it receives twice.
template <class Out, class D, class E = Serial, class T = Scalar<Out>>
requires std::floating_point<T> Traffic
backward(const SmartBirdAttention& op, const InputsOf<SmartBirdAttention, T>& inputs,
         const Out& out, const SavedOf<SmartBirdAttention, T>& saved, const D& d_out,
         const GradsOf<SmartBirdAttention, T>& grads, const Rows& rows, E&& executor = {}) {
  return SmartBirdBackwardCalls<T>::backward(op, inputs, View<const T>(out), saved,
                                             View<const T>(d_out), grads, rows,
                                             detail::RanksCall(op, executor));
}

}  // namespace distributed

FOVEA_NAMESPACE_END
