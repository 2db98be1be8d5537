// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of the Synthesizer's forms over a sharded sequence, as softmax attention.
#pragma once

#include "fovea/attention/dense_synthesizer.hpp"
#include "fovea/attention/factorised_synthesizer.hpp"
#include "fovea/attention/random_synthesizer.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/distributed/synthesizer/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The forward pass, for tensors of T. `forward` documents it.
template <class Op, class T>
class SynthesizerCalls {
 public:
  /// \param call of the same operator
  static CommStats forward(const Op& op, const InputsOf<Op, T>& inputs, const View<T>& out,
                           const SoftmaxSaved<T>& saved, const Sharding& rows,
                           const detail::CollectiveCall& call);
};

/// The forms of the Synthesizer in `forward`. r, r1, r2 and x have this rank's rows; r [1 or B, Hq,
/// own rows, N] has all columns. W1, b1, W2 and b2 are complete on every rank. Cost: each value
/// that the rank's rows see is received once, with its row of R2 or (dense form) its column of W2
/// and b2, for each sequence of the batch. Memory: that of softmax attention over a pattern, for
/// the dense form also [B, Hq, own rows, M + 1] and [1 or B, Hk, own rows, M + 1].
template <Synthesizer Op, class T>
struct DistributedForward<Op, T> : SynthesizerCalls<Op, T> {};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/synthesizer_forward.inl.hpp"
#endif
