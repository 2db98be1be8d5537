// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Smart Bird attention over a sharded sequence: that of the lists of chosen
/// keys.
#pragma once

#include <concepts>

#include "fovea/distributed/smart_bird/calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes the gradients of Smart Bird attention over a sharded sequence. Collective. Results are
/// bit-identical to `op.backward` over the whole sequence.
/// \param inputs as in `forward`
/// \param out, saved as `forward` wrote them, with lse and the chosen keys
/// \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out
/// \param grads of q, k and v, of this rank's rows: those with a tensor are written; ranks may
/// request different ones
/// \param executor as in `forward`
/// \returns this rank's communication statistics
/// \throws as `forward`; std::invalid_argument also if the chosen keys are missing, or are not
/// valid key lists
///
/// Cost: the logits and gradients of weights are computed for queries and for keys once each. Rows
/// that chose another rank's keys are sent there, and the chosen keys are sent back. Memory: the
/// rank's rows twice, and what it receives twice.
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
