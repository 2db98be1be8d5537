// SPDX-License-Identifier: MIT
/// \file
/// Both passes of the Synthesizer's forms over a sharded sequence, as softmax attention.
#pragma once

#include <concepts>

#include "fovea/attention/dense_synthesizer.hpp"
#include "fovea/attention/factorised_synthesizer.hpp"
#include "fovea/attention/random_synthesizer.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// A form of the Synthesizer.
template <class Op>
concept Synthesizer = std::derived_from<Op, fovea::detail::SynthesizerForm<Op, typename Op::Shape>>;

/// The forms of the Synthesizer in `forward`. r, r1, r2 and x have this rank's rows; r [1 or B, Hq,
/// own rows, N] has all columns. W1, b1, W2 and b2 are complete on every rank. Cost: each value
/// that the rank's rows see is received once, with its row of R2 or (dense form) its column of W2
/// and b2, for each sequence of the batch. Memory: that of softmax attention over a pattern, for
/// the dense form also [B, Hq, own rows, M + 1] and [1 or B, Hk, own rows, M + 1].
template <Synthesizer Op, class T>
CommStats forward(const ShardedForwardCall<Op, T>& call);

/// The forms of the Synthesizer in `backward`. Gradients of w1 and b1 require ranges of rows that
/// begin at multiples of kReductionBlock. Cost, communication and memory: those of softmax
/// attention over a pattern, where R is the bias. A factor that all sequences share also needs [B,
/// H, own rows, r] for its gradient. In the dense form, the sums for the gradients of W1 and b1 are
/// sent from range to range, once for each sequence if all share the weights, and then to all
/// ranks. So are the columns of the gradients of W2 and b2, which need memory of [1 or B, Hk, N, M
/// + 1].
template <Synthesizer Op, class T>
CommStats backward(const ShardedBackwardCall<Op, T>& call);

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/synthesizer.inl.hpp"
#endif
