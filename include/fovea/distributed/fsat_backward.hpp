// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of FSAT attention over a sharded sequence. The gradients of queries need the
/// keys they have edges to; those of keys and dominant indices need the queries with edges to them.
/// Both are exchanged, and nothing is reduced across ranks.
#pragma once

#include <concepts>

#include "fovea/distributed/fsat/calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes the gradients of FSAT attention over a sharded sequence. Collective. Results are
/// bit-identical to `op.backward` over the whole sequence.
/// \param inputs as in `forward`
/// \param out, saved as `forward` wrote them, with lse
/// \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out
/// \param grads of q, k, v and dominant, of this rank's rows: those with a tensor are written;
/// ranks may request different ones
/// \param executor as in `forward`
/// \returns this rank's communication statistics
/// \throws as `forward`
///
/// Cost: the logits and gradients of weights are computed for queries and for keys once each. Keys
/// are sent as in `forward`, and queries with an edge to a key are sent to its rank. Memory: the
/// rank's rows twice, what it receives twice, and two graphs.
template <class Out, class D, class E = Serial, class T = Scalar<Out>>
requires std::floating_point<T> Traffic
backward(const FsatAttention& op, const InputsOf<FsatAttention, T>& inputs, const Out& out,
         const SavedOf<FsatAttention, T>& saved, const D& d_out,
         const GradsOf<FsatAttention, T>& grads, const Rows& rows, E&& executor = {}) {
  return FsatBackwardCalls<T>::backward(op, inputs, View<const T>(out), saved, View<const T>(d_out),
                                        grads, rows, detail::RanksCall(op, executor));
}

}  // namespace distributed

FOVEA_NAMESPACE_END
