// SPDX-License-Identifier: MIT
/// \file
/// Both passes of Smart Bird attention over a sharded sequence. The few columns of the sketch
/// are sent to all ranks that may choose from them; each rank chooses for its own rows, and
/// requests the chosen keys and values.
#pragma once

#include "fovea/attention/smart_bird.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Smart Bird attention in `forward`. The chosen keys that it saves are positions in the sequence;
/// given draws are rejected. Cost: the sketch's keys are prepared once for each range of the rank.
/// Memory: the keys of the sketch of all rows, the rank's keys and values once more, and those that
/// its rows have chosen.
template <class T>
CommStats forward(const ShardedForwardCall<SmartBirdAttention, T>& call);

/// Smart Bird attention in `backward`. The chosen keys must be saved. Cost: the logits and
/// gradients of weights are computed for queries and for keys once each. Rows that chose another
/// rank's keys are sent there, and the chosen keys are sent back. Memory: the rank's rows twice,
/// and what it receives twice.
template <class T>
CommStats backward(const ShardedBackwardCall<SmartBirdAttention, T>& call);

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/smart_bird.inl.hpp"
#endif
