// SPDX-License-Identifier: MIT
/// \file
/// Both passes of FSAT attention over a sharded sequence. Each key determines the queries with
/// an edge to it: its row is sent to their ranks, which build the graph of their own queries.
#pragma once

#include "fovea/attention/fsat.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// FSAT attention in `forward`. Dominant indices are positions in the sequence; given random edges
/// are rejected. Cost: two passes over the dominant indices of the rank's keys and of those that it
/// receives: each key is sent once to every other rank that has a query with an edge to it, along
/// with at most a twelfth as many keys in between. Memory: the rank's keys, values and dominant
/// indices once more, those that it receives, and the graph of its queries.
template <class T>
CommStats forward(const ShardedForwardCall<FsatAttention, T>& call);

/// FSAT attention in `backward`. Cost: the logits and gradients of weights are computed for queries
/// and for keys once each. Keys are sent as in `forward`, and queries with an edge to a key are
/// sent to its rank. Memory: the rank's rows twice, what it receives twice, and two graphs.
template <class T>
CommStats backward(const ShardedBackwardCall<FsatAttention, T>& call);

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/fsat.inl.hpp"
#endif
