// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of the forms of the Synthesizer over a sequence that is spread over ranks,
/// whose weights have rows by position: that of softmax attention over what they make of their
/// inputs.
#pragma once

#include <concepts>

#include "fovea/attention/dense_synthesizer.hpp"
#include "fovea/attention/factorised_synthesizer.hpp"
#include "fovea/attention/random_synthesizer.hpp"
#include "fovea/distributed/synthesizer/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The backward pass, for tensors of T. `backward` documents it.
template <class Op, class T>
class SynthesizerBackwardCalls {
 public:
  /// \param call of the same operator
  static Traffic backward(const Op& op, const InputsOf<Op, T>& inputs, const View<const T>& out,
                          const SoftmaxSaved<T>& saved, const View<const T>& d_out,
                          const GradsOf<Op, T>& grads, const Rows& rows,
                          const detail::RanksCall& call);
};

/// Computes the gradients of a form of the Synthesizer over a sequence that is spread over ranks,
/// on all of them together. The bits are those of `op.backward` over the whole sequence. \param op,
/// inputs as in `forward`   \param out, saved as `forward` wrote them, with lse \param d_out [B,
/// Hq, own rows, Dv]: the gradient of the loss with respect to out \param grads r, r1, r2, x and v
/// of this rank's rows: those that have a tensor are written; the ranks may want different ones.
/// w1, b1, w2 and b2, each of which all ranks want or none, are those of the whole sequence \param
/// executor as in `forward`   \returns the messages of this rank \throws as `forward`; also
/// std::invalid_argument if the gradient of w1 or b1 is asked for, and a range of rows does not
/// begin at a multiple of kChain
///
/// Cost, messages, memory: as `backward` over softmax operators, whose bias is R. A factor of all
/// sequences also takes [B, H, own rows, r] for its gradient. Of the dense form the sums that the
/// gradients of W1 and b1 are go from range to range, once for each sequence if all have the same
/// weights, and then to all ranks; so do the columns of those of W2 and b2, for which it takes [1
/// or B, Hk, N, M + 1], as much as these are.
template <class Op, class Out, class D, class E = Serial, class T = Scalar<Out>>
requires Synthesizer<Op> && std::floating_point<T> Traffic
backward(const Op& op, const InputsOf<Op, T>& inputs, const Out& out, const SavedOf<Op, T>& saved,
         const D& d_out, const GradsOf<Op, T>& grads, const Rows& rows, E&& executor = {}) {
  return SynthesizerBackwardCalls<Op, T>::backward(op, inputs, View<const T>(out), saved,
                                                   View<const T>(d_out), grads, rows,
                                                   detail::RanksCall(op, executor));
}

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/synthesizer_backward.inl.hpp"
#endif
