// SPDX-License-Identifier: MIT
/// \file
/// Sinkhorn attention over a sharded sequence: a sorted block is a sum of all blocks, so heads are
/// distributed.
#pragma once

#include "fovea/attention/sinkhorn.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Sinkhorn attention in `forward`. A rank has the sorting logits [B, Hk, own blocks, N / b] of the
/// blocks whose first rows it has (blocks_of); the rows of a block may be on different ranks.
/// Either all ranks save lse, or none. Cost: a rank computes all rows of the key heads that
/// HeadAllToAll assigns to it; with fewer key heads than ranks, some ranks compute nothing. Rows of
/// q, k, v, out and R are sent to and from the ranks of other heads. Memory: three times the rank's
/// rows, and the operator's memory for the rank's heads. **Each rank holds all rows of its heads.**
template <class T>
CommStats forward(const ShardedForwardCall<SinkhornAttention, T>& call);
/// Sinkhorn attention in `backward`. The gradient of the sorting logits is that of the rank's
/// blocks. All ranks request the same gradients. Cost, memory: by heads, as `forward`; out, lse,
/// d_out and the gradients are exchanged, too.
template <class T>
CommStats backward(const ShardedBackwardCall<SinkhornAttention, T>& call);

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/sinkhorn.inl.hpp"
#endif
