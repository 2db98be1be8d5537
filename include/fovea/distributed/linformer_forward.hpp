// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of Linformer attention over a sequence that is sharded over ranks. Rows stay
/// where they are; what travels is the projected keys and values, and rows where ranges end within
/// a chain of kReductionBlock tokens.
#pragma once

#include <concepts>

#include "fovea/attention/linformer.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Linformer attention in `forward`. A rank has the columns of E and F for its tokens, [1, 1 or Hk,
/// P, own rows], with all rows P even where it has no tokens. The projected keys and values that it
/// saves are whole; the ranks may save different tensors. Cost: the projected keys and values, B Hk
/// P (D + Dv) numbers, are sent at each end of a range of rows, up to 64 rows of some heads at a
/// time, and then to all ranks; ranks wait for each other unless there are many more such parts
/// than a rank has threads. Where a range does not begin at a multiple of kChain, fewer rows than
/// that travel, with their columns of E and F. Memory: twice the projected keys and values, and
/// what travels.
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
