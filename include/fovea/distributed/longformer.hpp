// SPDX-License-Identifier: MIT
/// \file
/// Longformer attention over a sharded sequence. If global rows have separate projections, they are
/// a second pass with its own exchange.
#pragma once

#include <concepts>

#include "fovea/attention/longformer.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/distributed/softmax/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Longformer attention in `forward`. Bias and mask are as in softmax attention over a pattern.
/// Cost: global rows see every key. Keys and values that the rank's rows see are received; a rank
/// with global rows receives all (of global_k and global_v, if given). Memory: that of softmax
/// attention over a pattern, twice if global_q is given.
template <class T>
CommStats forward(const ShardedForwardCall<LongformerAttention, T>& call);
/// Longformer attention in `backward`. It rejects the same inputs as softmax attention over a
/// pattern and `op.backward`. Cost, memory: those of softmax attention over a pattern, for each set
/// of projections.
template <class T>
CommStats backward(const ShardedBackwardCall<LongformerAttention, T>& call);

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/longformer.inl.hpp"
#endif
