// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of the forms of the Synthesizer over a sequence that is sharded over ranks:
/// that of softmax attention over what they make of their inputs.
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

/// The forms of the Synthesizer in `forward`. What has rows by position, r, r1, r2 or x, is that of
/// this rank's rows; r [1 or B, Hq, own rows, N] has the columns of all of them. W1, b1, W2 and b2
/// are whole on every rank.
/// Cost: each value that the rank's rows see is received once, with its row of R2 or, of the dense
/// form, its column of W2 and b2, for each sequence of the batch. Memory: that of softmax attention
/// over a pattern, for the dense form also [B, Hq, own rows, M + 1] and [1 or B, Hk, own rows, M +
/// 1].
template <Synthesizer Op, class T>
struct DistributedForward<Op, T> : SynthesizerCalls<Op, T> {};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/synthesizer_forward.inl.hpp"
#endif
