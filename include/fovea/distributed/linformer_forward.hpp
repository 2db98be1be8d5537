// SPDX-License-Identifier: MIT
/// \file
/// Both passes of Linformer attention over a sharded sequence. Rows stay where they are; ranks
/// exchange the projected keys and values, and rows where ranges end within a reduction block of
/// kReductionBlock tokens.
#pragma once

#include <concepts>

#include "fovea/attention/linformer.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Linformer attention in `forward`. A rank has the columns of E and F for its tokens, [1, 1 or Hk,
/// P, own rows], with P rows even if it has no tokens. Each rank saves complete projected keys and
/// values; ranks may save different tensors. Cost: the projected keys and values, B Hk P (D + Dv)
/// numbers, are sent at the end of each range of rows, up to 64 rows of some heads at a time, and
/// then to all ranks; ranks wait for each other unless there are many more such parts than a rank
/// has threads. If a range does not begin at a multiple of kReductionBlock, up to that many rows
/// are sent, with their columns of E and F. Memory: twice the projected keys and values, and the
/// rows that are exchanged.
template <std::floating_point T>
CommStats forward(const ShardedForwardCall<LinformerAttention, T>& call);

/// Linformer attention in `backward`. Either all ranks saved the projected keys and values, or
/// none. Gradients of E and F are those of the rank's columns. Cost: the gradients of the projected
/// keys and values, B Hk P (D + Dv) numbers, are sent at the end of each range of rows once for
/// each query head of a key head, and then to all ranks: one block of keys of a head at a time, as
/// in `forward`. If a range does not begin at a multiple of block_rows of the sequence, up to that
/// many rows are sent, and their gradients back. If nothing was saved, the projected keys and
/// values are exchanged as in `forward`. Memory: the rank's rows of queries twice, five times the
/// projected keys and values, and the contribution of each block of queries to their gradients.
template <std::floating_point T>
CommStats backward(const ShardedBackwardCall<LinformerAttention, T>& call);

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/linformer.inl.hpp"
#endif
