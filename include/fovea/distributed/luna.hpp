// SPDX-License-Identifier: MIT
/// \file
/// Luna attention over a sharded sequence, all of which have the packed rows.
#pragma once

#include <concepts>

#include "fovea/attention/luna.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/distributed/softmax/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// A step of Luna attention.
template <class Op, class T>
concept LunaStepAttention = (std::same_as<Op, LunaPack> ||
                             std::same_as<Op, LunaUnpack>)&&std::floating_point<T>;

/// A step of Luna attention in `forward`. Packed rows are the same on all ranks: q [B, Hq, P, D]
/// and out [B, Hq, P, Dv] of LunaPack, k and v [B, Hk, P, ...] of LunaUnpack. Bias and mask are
/// refused. Cost: LunaUnpack sends nothing. LunaPack sends a running softmax of P (Dv + 3) numbers
/// for each query head from range to range, in the order of the rows, and then to all ranks. All
/// ranks compute at the same time, and wait for each other only to merge. Keys and values of
/// segments of kKeySegment rows that are on several ranks are sent to the rank of the first row.
/// Memory: the segments that are on several ranks; for LunaPack a running softmax of each query
/// head for each of the rank's segments; for LunaUnpack the scratch of the operator's `forward` for
/// each range of the rank's rows.
template <class Op, class T>
requires LunaStepAttention<Op, T> CommStats forward(const ShardedForwardCall<Op, T>& call);

/// A step of Luna attention in `backward`. LunaPack's d_out is the same on all ranks. Gradients of
/// packed rows are sums over all ranks; either all ranks request that of LunaPack's q, or none. The
/// gradient of a bias is refused. Cost: the sums of packed rows are sent from range to range and
/// then to all ranks: for LunaPack P D numbers for each query head; for LunaUnpack P rows of D and
/// of Dv numbers, rounded up to vectors, for each key head, once for each of its query heads. All
/// ranks compute at the same time, and wait for each other only to add. Rows of segments that are
/// on several ranks are sent to the rank of the first row, and their gradients back: segments of
/// kKeySegment keys, or blocks of block_rows(N) queries. If lse is large, LunaPack sends 4 P more
/// numbers for each query head. Memory: the rank's rows twice, and as many numbers as a sum has for
/// each block of 512 rows (fewer if N is below 4096).
template <class Op, class T>
requires LunaStepAttention<Op, T> CommStats backward(const ShardedBackwardCall<Op, T>& call);

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/luna.inl.hpp"
#endif
