// SPDX-License-Identifier: MIT
/// \file
/// The distributed calls of attention to gathered keys, which depend only on the scalar type, so
/// that a library can compile them once (kernels/unit.hpp).
#pragma once

#include "fovea/attention/indexed.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Attention to gathered keys in `forward`. `indices` are positions in the sequence. Cost: a pass
/// over the rank's lists; each visible key and value that they list is received once. Memory: the
/// rank's keys, values and lists once more, and what it receives.
template <class T>
struct DistributedForward<IndexedAttention, T> {
  /// Computes the pass.
  static CommStats forward(const IndexedAttention& op, const IndexedInputs<T>& inputs,
                           const View<T>& out, const IndexedSaved<T>& saved, const Sharding& rows,
                           const detail::CollectiveCall& call);
};

/// Attention to gathered keys in `backward`. Cost: the logits and gradients of weights are computed
/// for queries and for keys once each. Rows that list another rank's keys are sent there, with
/// their lists, and the keys are sent back. Memory: the rank's rows and lists twice, and what it
/// receives twice.
template <class T>
struct DistributedBackward<IndexedAttention, T> {
  /// Computes the pass.
  static CommStats backward(const IndexedAttention& op, const IndexedInputs<T>& inputs,
                            const View<const T>& out, const IndexedSaved<T>& saved,
                            const View<const T>& d_out, const IndexedGrads<T>& grads,
                            const Sharding& rows, const detail::CollectiveCall& call);
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/indexed/calls.inl.hpp"
#endif
