// SPDX-License-Identifier: MIT
/// \file
/// Reformer attention over a sharded sequence: which rows see each other depends on all rows, so
/// heads are distributed.
#pragma once

#include "fovea/attention/reformer.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Reformer attention in `forward`. The rows of a chunk may be on different ranks. All ranks save
/// the same tensors. Cost: a rank computes all rows of the heads that HeadAllToAll assigns to it;
/// with fewer heads than ranks, some ranks compute nothing. Rows of qk, v and out are sent to and
/// from the ranks of other heads. Memory: three times the rank's rows, and the operator's memory
/// for the rank's heads. **Each rank holds all rows of its heads.**
template <class T>
CommStats forward(const ShardedForwardCall<ReformerAttention, T>& call);
/// Reformer attention in `backward`. All ranks request the same gradients and saved the same
/// tensors. Cost, memory: by heads, as `forward`; out, d_out and the gradients are exchanged, too.
template <class T>
CommStats backward(const ShardedBackwardCall<ReformerAttention, T>& call);

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/reformer.inl.hpp"
#endif
