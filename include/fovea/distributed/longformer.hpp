// SPDX-License-Identifier: MIT
/// \file
/// Longformer attention over a sequence that is spread over ranks. If the rows of global positions
/// have projections of their own, they are a second pass, with an exchange of its own.
#pragma once

#include <concepts>

#include "fovea/attention/longformer.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/distributed/softmax/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Longformer attention in `forward`. Bias and mask are as in softmax attention over a pattern.
/// Cost: rows of global positions see every key. Keys and values that the rank's rows see are
/// received; a rank that holds global rows receives all, of global_k and global_v if they are
/// given. Memory: that of softmax attention over a pattern, twice if global_q is given.
template <class T>
struct RanksForward<LongformerAttention, T> {
  /// Computes the pass.
  static Traffic forward(const LongformerAttention& op, const LongformerInputs<T>& inputs,
                         const View<T>& out, const SoftmaxSaved<T>& saved, const Rows& rows,
                         const detail::RanksCall& call);
};
/// Longformer attention in `backward`. It refuses what softmax attention over a pattern and
/// `op.backward` refuse.
/// Cost, memory: those of softmax attention over a pattern, for each set of projections.
template <class T>
struct RanksBackward<LongformerAttention, T> {
  /// Computes the pass.
  static Traffic backward(const LongformerAttention& op, const LongformerInputs<T>& inputs,
                          const View<const T>& out, const SoftmaxSaved<T>& saved,
                          const SoftmaxOutGrads<T>& d_out, const LongformerGrads<T>& grads,
                          const Rows& rows, const detail::RanksCall& call);
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/longformer.inl.hpp"
#endif
