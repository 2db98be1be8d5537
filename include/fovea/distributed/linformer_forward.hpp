// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of Linformer attention over a sharded sequence. Rows stay where they are; ranks
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
struct DistributedForward<LinformerAttention, T> {
  /// Computes the pass.
  static CommStats forward(const LinformerAttention& op, const LinformerInputs<T>& inputs,
                           const View<T>& out, const LinformerSaved<T>& saved, const Sharding& rows,
                           const detail::CollectiveCall& call);
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/linformer_forward.inl.hpp"
#endif
