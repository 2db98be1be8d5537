// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of the forms of the Synthesizer over a sequence that is sharded over ranks,
/// whose weights have rows by position: that of softmax attention over what they make of their
/// inputs.
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

/// The forms of the Synthesizer in `backward`. Gradients of w1 and b1 are refused where a range of
/// rows does not begin at a multiple of kReductionBlock.
/// Cost, messages, memory: those of softmax attention over a pattern, whose bias is R. A factor of
/// all sequences also takes [B, H, own rows, r] for its gradient. Of the dense form the sums that
/// the gradients of W1 and b1 are go from range to range, once for each sequence if all have the
/// same weights, and then to all ranks; so do the columns of those of W2 and b2, for which it takes
/// [1 or B, Hk, N, M + 1], as much as these are.
template <Synthesizer Op, class T>
struct DistributedBackward<Op, T> : SynthesizerBackwardCalls<Op, T> {};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/synthesizer_backward.inl.hpp"
#endif
