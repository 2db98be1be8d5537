// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of FSAT attention over a sharded sequence. Each key determines the queries with
/// an edge to it: its row is sent to their ranks, which build the graph of their own queries.
#pragma once

#include "fovea/distributed/fsat/calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes FSAT attention over a sharded sequence. All ranks call it together, each with its own
/// rows. Results are bit-identical to `op.forward` over the whole sequence, for any number of ranks
/// and any layout. \param inputs q, k, v and dominant of this rank's rows, in ascending order:
/// dominant indices are positions in the sequence; key lengths count tokens of the whole sequence
/// \param out [B, Hq, own rows, Dv], written \param saved lse of the rank's rows \param executor as
/// in the operator's `forward` \returns this rank's communication statistics \throws as `forward`
/// over softmax operators; std::invalid_argument also if random edges are given
///
/// Cost: that of the rank's rows, and two passes over the dominant indices of its keys and of those
/// that it receives: each key is sent once to every other rank that has a query with an edge to it,
/// along with at most a twelfth as many keys in between. Memory: the rank's keys, values and
/// dominant indices once more, those that it receives, and the graph of its queries.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const FsatAttention& op, const InputsOf<FsatAttention, T>& inputs, Out&& out,
                const SavedOf<FsatAttention, T>& saved, const Rows& rows, E&& executor = {}) {
  return FsatCalls<T>::forward(op, inputs, View<T>(out), saved, rows,
                               detail::RanksCall(op, executor));
}

/// The same, without saved state.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const FsatAttention& op, const InputsOf<FsatAttention, T>& inputs, Out&& out,
                const Rows& rows, E&& executor = {}) {
  return forward(op, inputs, View<T>(out), FsatSaved<T>{}, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
