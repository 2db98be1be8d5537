// SPDX-License-Identifier: MIT
/// \file
/// Both passes of Nystroem attention over a sharded sequence. All ranks get the landmarks and
/// the output of their attention to the keys, and all compute the products of the landmarks.
#pragma once

#include <concepts>

#include "fovea/attention/nystroem.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Nystroem attention in `forward`. Saved landmark tensors are complete on every rank. Cost: 8 m^3
/// flops per iteration and head on every rank. (m + 1) D numbers for each query head and for each
/// key head, and then m (Dv + 3) for each query head, are sent from range to range and to all
/// ranks. Keys and values of segments of kKeySegment rows that are on several ranks are sent to the
/// rank of the first row. Memory: O(B Hq m (D + Dv + m)), a running softmax of m (Dv + 3) numbers
/// of each query head for each of the rank's segments, and with key lengths a byte for each row of
/// the sequence.
template <std::floating_point T>
CommStats forward(const ShardedForwardCall<NystroemAttention, T>& call);

/// Nystroem attention in `backward`. The softmax over keys is computed again unless both landmark
/// tensors were saved, on all ranks or on none. Cost: 30 m^3 flops per iteration and head on every
/// rank. Communication: that of the forward pass (without the softmax over keys if that was saved),
/// of LunaUnpack's backward pass to m keys of each query head, and of LunaPack's. Memory: the
/// rank's rows twice, and that of these two passes.
template <std::floating_point T>
CommStats backward(const ShardedBackwardCall<NystroemAttention, T>& call);

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/nystroem.inl.hpp"
#endif
