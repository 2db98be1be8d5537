// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of FSAT attention over a sequence that is spread over ranks. The gradients of
/// queries need the keys that they have edges to, those of keys and of dominant indices the queries
/// that have edges to them; each come to the other, and nothing is added up between ranks.
#pragma once

#include <concepts>

#include "fovea/distributed/fsat/calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes the gradients of FSAT attention over a sequence that is spread over ranks, on all of
/// them together. The bits are those of `op.backward` over the whole sequence.
/// \param inputs as in `forward`
/// \param out, saved as `forward` wrote them, with lse
/// \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out
/// \param grads of q, k, v and dominant, of this rank's rows: those that have a tensor are written;
/// the ranks may want different ones
/// \param executor as in `forward`
/// \returns the messages of this rank
/// \throws as `forward`
///
/// Cost: the logits and gradients of weights are computed for queries and for keys once each. Keys
/// travel as in `forward`, and the queries that have an edge to a key come to its rank.
/// Memory: the rank's rows twice, what it receives twice, and two graphs.
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
