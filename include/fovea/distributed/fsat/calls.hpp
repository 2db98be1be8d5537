// SPDX-License-Identifier: MIT
/// \file
/// The calls of FSAT attention across ranks, which depend only on the scalar type, so that a
/// library can compile them once (kernels/unit.hpp).
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
struct DistributedForward<FsatAttention, T> {
  /// Computes the pass.
  static CommStats forward(const FsatAttention& op, const FsatInputs<T>& inputs, const View<T>& out,
                           const FsatSaved<T>& saved, const Sharding& rows,
                           const detail::CollectiveCall& call);
};

/// FSAT attention in `backward`. Cost: the logits and gradients of weights are computed for queries
/// and for keys once each. Keys are sent as in `forward`, and queries with an edge to a key are
/// sent to its rank. Memory: the rank's rows twice, what it receives twice, and two graphs.
template <class T>
struct DistributedBackward<FsatAttention, T> {
  /// Computes the pass.
  static CommStats backward(const FsatAttention& op, const FsatInputs<T>& inputs,
                            const View<const T>& out, const FsatSaved<T>& saved,
                            const View<const T>& d_out, const FsatGrads<T>& grads,
                            const Sharding& rows, const detail::CollectiveCall& call);
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/fsat/calls.inl.hpp"
#endif
