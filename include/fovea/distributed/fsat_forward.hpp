// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of FSAT attention over a sequence that is spread over ranks. Every key knows
/// the queries that it has an edge from: its row goes to their ranks, which build the graph of
/// their own queries.
#pragma once

#include "fovea/distributed/fsat/calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes FSAT attention over a sequence that is spread over ranks, on all of them together;
/// every rank calls it with its own rows. The bits are those of `op.forward` over the whole
/// sequence, for any number of ranks and any layout. \param inputs q, k, v and dominant of this
/// rank's rows, in ascending order: dominant indices are positions in the sequence; key lengths
/// count tokens of the whole sequence \param out [B, Hq, own rows, Dv], written \param saved lse of
/// the rank's rows \param executor as in `forward` of the operator \returns the messages of this
/// rank \throws as `forward` over softmax operators; std::invalid_argument also if random edges are
/// given
///
/// Cost: that of the rank's rows, and two passes over the dominant indices of its keys and of those
/// that it receives: each key goes once to every other rank that has a query with an edge to it,
/// and so do at most a twelfth as many that lie between them. Memory: the rank's keys, values and
/// dominant indices once more, those that it receives, and the graph of its queries.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const FsatAttention& op, const InputsOf<FsatAttention, T>& inputs, Out&& out,
                const SavedOf<FsatAttention, T>& saved, const Rows& rows, E&& executor = {}) {
  return FsatCalls<T>::forward(op, inputs, View<T>(out), saved, rows,
                               detail::RanksCall(op, executor));
}

/// The same, where nothing is saved.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const FsatAttention& op, const InputsOf<FsatAttention, T>& inputs, Out&& out,
                const Rows& rows, E&& executor = {}) {
  return forward(op, inputs, View<T>(out), FsatSaved<T>{}, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
