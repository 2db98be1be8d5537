// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Nystroem attention over a sharded sequence.
#pragma once

#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/distributed/nystroem_forward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Nystroem attention in `backward`. The softmax over keys is computed again unless both landmark
/// tensors were saved, on all ranks or on none. Cost: 30 m^3 flops per iteration and head on every
/// rank. Communication: that of the forward pass (without the softmax over keys if that was saved),
/// of LunaUnpack's backward pass to m keys of each query head, and of LunaPack's. Memory: the
/// rank's rows twice, and that of these two passes.
template <std::floating_point T>
struct DistributedBackward<NystroemAttention, T> {
  /// Computes the pass.
  static CommStats backward(const NystroemAttention& op, const NystroemInputs<T>& inputs,
                            const View<const T>& out, const NystroemSaved<T>& saved,
                            const View<const T>& d_out, const NystroemGrads<T>& grads,
                            const Sharding& rows, const detail::CollectiveCall& call);
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/nystroem_backward.inl.hpp"
#endif
