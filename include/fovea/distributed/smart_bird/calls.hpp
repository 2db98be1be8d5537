// SPDX-License-Identifier: MIT
/// \file
/// The calls of Smart Bird attention across ranks, which depend only on the scalar type, so that a
/// library can compile them once (kernels/unit.hpp).
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
struct DistributedForward<SmartBirdAttention, T> {
  /// Computes the pass.
  static CommStats forward(const SmartBirdAttention& op, const SmartBirdInputs<T>& inputs,
                           const View<T>& out, const SmartBirdSaved<T>& saved, const Sharding& rows,
                           const detail::CollectiveCall& call);
};

/// Smart Bird attention in `backward`. The chosen keys must be saved. Cost: the logits and
/// gradients of weights are computed for queries and for keys once each. Rows that chose another
/// rank's keys are sent there, and the chosen keys are sent back. Memory: the rank's rows twice,
/// and what it receives twice.
template <class T>
struct DistributedBackward<SmartBirdAttention, T> {
  /// Computes the pass.
  static CommStats backward(const SmartBirdAttention& op, const SmartBirdInputs<T>& inputs,
                            const View<const T>& out, const SmartBirdSaved<T>& saved,
                            const View<const T>& d_out, const SmartBirdGrads<T>& grads,
                            const Sharding& rows, const detail::CollectiveCall& call);
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/smart_bird/calls.inl.hpp"
#endif
