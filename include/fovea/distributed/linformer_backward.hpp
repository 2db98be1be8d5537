// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Linformer attention over a sharded sequence. Ranks exchange the gradients
/// of the projected keys and values, and rows where ranges end within a block of queries; gradients
/// of tokens and of columns of E and F are computed on the rank that has them.
#pragma once

#include "fovea/distributed/linformer_forward.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Linformer attention in `backward`. Either all ranks saved the projected keys and values, or
/// none. Gradients of E and F are those of the rank's columns. Cost: the gradients of the projected
/// keys and values, B Hk P (D + Dv) numbers, are sent at the end of each range of rows once for
/// each query head of a key head, and then to all ranks: one block of keys of a head at a time, as
/// in `forward`. If a range does not begin at a multiple of block_rows of the sequence, up to that
/// many rows are sent, and their gradients back. If nothing was saved, the projected keys and
/// values are exchanged as in `forward`. Memory: the rank's rows of queries twice, five times the
/// projected keys and values, and the contribution of each block of queries to their gradients.
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
