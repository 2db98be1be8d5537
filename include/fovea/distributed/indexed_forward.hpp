// SPDX-License-Identifier: MIT
/// \file
/// Both passes of attention to gathered keys over a sharded sequence. Rows stay in place; the
/// keys that they list are fetched.
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
CommStats forward(const ShardedForwardCall<IndexedAttention, T>& call);

/// Attention to gathered keys in `backward`. Cost: the logits and gradients of weights are computed
/// for queries and for keys once each. Rows that list another rank's keys are sent there, with
/// their lists, and the keys are sent back. Memory: the rank's rows and lists twice, and what it
/// receives twice.
template <class T>
CommStats backward(const ShardedBackwardCall<IndexedAttention, T>& call);

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/indexed.inl.hpp"
#endif
