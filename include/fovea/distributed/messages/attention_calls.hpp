// SPDX-License-Identifier: MIT
/// \file
/// `forward` and `backward` of attention operators over a sharded sequence. The headers of the
/// operators' passes register here, and document inputs, messages and cost.
#pragma once

#include <concepts>

#include "fovea/attention/call/backward_calls.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The forward pass of the operator `Op` across ranks, for tensors of T: a specialisation has
/// `static CommStats forward(op, inputs, out, saved, rows, call)`, where `call` is of the same
/// operator.
template <class Op, class T>
struct DistributedForward {};
/// The backward pass: `static CommStats backward(op, inputs, out, saved, d_out, grads, rows,
/// call)`. Operators with OutGrads<T> take these as d_out.
template <class Op, class T>
struct DistributedBackward {};

/// An operator whose distributed forward pass was included.
template <class Op, class T>
concept HasDistributedForward = requires {
  &DistributedForward<Op, T>::forward;
};
/// An operator whose distributed backward pass was included.
template <class Op, class T>
concept HasDistributedBackward = std::floating_point<T> && requires {
  &DistributedBackward<Op, T>::backward;
};

/// Computes an attention operator over a sharded sequence. All ranks call it together, each with
/// its own rows. Results are bit-identical to `op.forward` over the whole sequence, for any number
/// of ranks and any layout.
/// \param inputs the inputs of `op` for this rank's rows, [B, H, own rows, D] in ascending order.
/// Key lengths and positions are global; tensors without rows are equal on all ranks
/// \param out [B, Hq, own rows, Dv], written
/// \param saved the saved state of the rank's rows; given tensors are written
/// \param executor runs this rank's blocks, as in the operator's `forward`
/// \returns this rank's communication statistics
/// \throws on all ranks what one of them throws, with its number, before anything is written:
/// std::invalid_argument for inputs that `op` rejects, for packed sequences, for tensors that do
/// not have the rank's rows, for calls that differ between ranks, and for an arena in use or too
/// small; std::bad_alloc. Later, what a user's pattern or executor throws while computing.
/// std::runtime_error if MPI fails.
///
/// Cost: that of the rank's rows, and what the specialisation of DistributedForward documents.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires HasDistributedForward<Op, T> CommStats forward(const Op& op, const InputsOf<Op, T>& inputs,
                                                        Out&& out, const SavedOf<Op, T>& saved,
                                                        const Sharding& rows, E&& executor = {}) {
  return DistributedForward<Op, T>::forward(op, inputs, View<T>(out), saved, rows,
                                            detail::CollectiveCall(op, executor));
}

/// The same, without saved state.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires HasDistributedForward<Op, T> CommStats forward(const Op& op, const InputsOf<Op, T>& inputs,
                                                        Out&& out, const Sharding& rows,
                                                        E&& executor = {}) {
  return forward<Op>(op, inputs, View<T>(out), SavedOf<Op, T>{}, rows, executor);
}

/// Computes the gradients of an attention operator over a sharded sequence. Collective. Results are
/// bit-identical to `op.backward` over the whole sequence.
/// \param op, inputs as in `forward`   \param out, saved as `forward` wrote them, with lse if the
/// operator has one
/// \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out; for operators
/// of softmax attention over patterns also {.d_out = ..., .d_lse = ...}
/// \param grads of this rank's rows: those with a tensor are written; ranks may request different
/// ones. Gradients of tensors without rows, requested by all ranks or none, are those of the whole
/// sequence
/// \param executor as in `forward`   \returns this rank's communication statistics   \throws as
/// `forward`
///
/// Cost: that of the rank's rows, and what the specialisation of DistributedBackward documents.
template <class Op, class Out, class T = Scalar<Out>,
          class D = typename fovea::detail::OutGradsFor<Op, T>::Type, class E = Serial>
requires HasDistributedBackward<Op, T> CommStats
backward(const Op& op, const InputsOf<Op, T>& inputs, const Out& out, const SavedOf<Op, T>& saved,
         const D& d_out, const GradsOf<Op, T>& grads, const Sharding& rows, E&& executor = {}) {
  const auto pass = [&](const auto& d) {
    return DistributedBackward<Op, T>::backward(op, inputs, View<const T>(out), saved, d, grads,
                                                rows, detail::CollectiveCall(op, executor));
  };
  if constexpr (std::same_as<D, typename fovea::detail::OutGradsFor<Op, T>::Type>) {
    return pass(d_out);
  } else if constexpr (requires { typename Op::template OutGrads<T>; }) {
    return pass(typename Op::template OutGrads<T>{.d_out = View<const T>(d_out)});
  } else {
    return pass(View<const T>(d_out));
  }
}

}  // namespace distributed

FOVEA_NAMESPACE_END

// In a unit that compiles passes, FOVEA_RANKS_PASSES(FORWARD, Op) or (BACKWARD, Op) instantiates
// one of an operator for float and double.
#define FOVEA_RANKS_FORWARD(Op, T) template struct DistributedForward<Op, T>;
#define FOVEA_RANKS_BACKWARD(Op, T) template struct DistributedBackward<Op, T>;
#define FOVEA_RANKS_PASSES(Pass, Op)          \
  FOVEA_IN_FLOAT_UNIT(FOVEA_RANKS_##Pass, Op) \
  FOVEA_IN_DOUBLE_UNIT(FOVEA_RANKS_##Pass, Op)
