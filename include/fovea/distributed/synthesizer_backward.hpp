// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of the Synthesizer's forms over a sharded sequence: softmax attention, and the
/// gradients of weights.
#pragma once

#include <concepts>

#include "fovea/attention/dense_synthesizer.hpp"
#include "fovea/attention/factorised_synthesizer.hpp"
#include "fovea/attention/random_synthesizer.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/distributed/synthesizer/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The backward pass, for tensors of T. `backward` documents it.
template <class Op, class T>
class SynthesizerBackwardCalls {
 public:
  /// \param call of the same operator
  static CommStats backward(const Op& op, const InputsOf<Op, T>& inputs, const View<const T>& out,
                            const SoftmaxSaved<T>& saved, const View<const T>& d_out,
                            const GradsOf<Op, T>& grads, const Sharding& rows,
                            const detail::CollectiveCall& call);
};

/// The forms of the Synthesizer in `backward`. Gradients of w1 and b1 require ranges of rows that
/// begin at multiples of kReductionBlock. Cost, communication and memory: those of softmax
/// attention over a pattern, where R is the bias. A factor that all sequences share also needs [B,
/// H, own rows, r] for its gradient. In the dense form, the sums for the gradients of W1 and b1 are
/// sent from range to range, once for each sequence if all share the weights, and then to all
/// ranks. So are the columns of the gradients of W2 and b2, which need memory of [1 or B, Hk, N, M
/// + 1].
template <Synthesizer Op, class T>
struct DistributedBackward<Op, T> : SynthesizerBackwardCalls<Op, T> {};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/synthesizer_backward.inl.hpp"
#endif
