// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Linformer attention over a sequence that is sharded over ranks. What
/// travels is the gradients of the projected keys and values, and rows where ranges end within a
/// block of queries; those of tokens and of columns of E and F are made where these are.
#pragma once

#include "fovea/distributed/linformer_forward.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Linformer attention in `backward`. The projected keys and values are given by all ranks or by
/// none. Gradients of E and F are those of the rank's columns.
/// Cost: the gradients of the projected keys and values, B Hk P (D + Dv) numbers, are sent at each
/// end of a range of rows once for each query head of a key head, and then to all ranks: a block of
/// keys of a head at a time, as in `forward`. Where a range does not begin at a multiple of
/// block_rows of the sequence, fewer rows than that travel, and their gradients back. If nothing
/// was saved, the projected keys and values travel as in `forward`.
/// Memory: the rank's rows of queries twice, five times the projected keys and values, and what
/// each block of queries adds to their gradients.
template <std::floating_point T>
struct DistributedBackward<LinformerAttention, T> {
  /// Computes the pass.
  static CommStats backward(const LinformerAttention& op, const LinformerInputs<T>& inputs,
                            const View<const T>& out, const LinformerSaved<T>& saved,
                            const View<const T>& d_out, const LinformerGrads<T>& grads,
                            const Sharding& rows, const detail::CollectiveCall& call);
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/linformer_backward.inl.hpp"
#endif
