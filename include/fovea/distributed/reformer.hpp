// SPDX-License-Identifier: MIT
/// \file
/// Reformer attention over a sequence that is sharded over ranks: which rows see each other is
/// known when all are sorted, so that the call is made by heads.
#pragma once

#include "fovea/attention/reformer.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Reformer attention in `forward`. The rows of a chunk may be on different ranks. All ranks save
/// the same tensors.
/// Cost: a rank computes all rows of some heads, as HeadAllToAll deals them; with fewer heads than
/// ranks some ranks compute nothing. Its rows of qk, v and out travel to and from the other ranks'
/// heads. Memory: three times as many numbers as its rows have, and what the operator takes for its
/// heads. **Each rank holds all rows of its heads.**
template <class T>
struct DistributedForward<ReformerAttention, T> {
  /// Computes the pass.
  static CommStats forward(const ReformerAttention& op, const ReformerInputs<T>& inputs,
                           const View<T>& out, const ReformerSaved<T>& saved, const Sharding& rows,
                           const detail::CollectiveCall& call);
};
/// Reformer attention in `backward`. All ranks want the same gradients, and give the same members
/// of `saved`.
/// Cost, memory: by heads, as `forward`; out, d_out and the gradients travel, too.
template <class T>
struct DistributedBackward<ReformerAttention, T> {
  /// Computes the pass.
  static CommStats backward(const ReformerAttention& op, const ReformerInputs<T>& inputs,
                            const View<const T>& out, const ReformerSaved<T>& saved,
                            const View<const T>& d_out, const ReformerGrads<T>& grads,
                            const Sharding& rows, const detail::CollectiveCall& call);
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/reformer.inl.hpp"
#endif
