// SPDX-License-Identifier: MIT
/// \file
/// `forward` and `backward` of attention operators over a sharded sequence. The headers of the
/// operators' passes overload them for a ShardedForwardCall and a ShardedBackwardCall, and document
/// inputs, messages and cost.
#pragma once

#include <concepts>
#include <tuple>

#include "fovea/attention/call/backward_calls.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// The type of d_out in an operator's backward pass: a tensor, or the operator's OutGrads<T>.
template <class Op, class T>
struct OutGradsOf {
  using Type = View<const T>;  ///< the type
};
/// That of an operator with OutGrads.
template <class Op, class T>
requires requires { typename Op::template OutGrads<T>; }
struct OutGradsOf<Op, T> {
  using Type = typename Op::template OutGrads<T>;  ///< the type
};

}  // namespace detail

/// The arguments of a forward pass over a sharded sequence; they outlive it.
/// \tparam Op an attention operator, or what the passes of its family read of it
template <class Op, class T, class In = InputsOf<Op, T>, class S = SavedOf<Op, T>>
struct ShardedForwardCall {
  /// What follows the operator's name in messages.
  static constexpr const char* kPass = ".forward";

  const Op& op;                              ///< the operator
  const In& inputs;                          ///< of this rank's rows
  const View<T>& out;                        ///< of this rank's rows, written
  const S& saved;                            ///< likewise
  const Sharding& rows;                      ///< which rank has which rows
  const detail::CollectiveCall& collective;  ///< the operator's name and options, and the executor

  /// The tensors that the pass reads.
  auto read() const { return std::tuple(inputs); }
  /// The tensors that it writes.
  auto written() const { return std::tuple(out, saved); }
};

/// The arguments of a backward pass; they outlive it.
template <class Op, class T, class In = InputsOf<Op, T>, class S = SavedOf<Op, T>,
          class G = GradsOf<Op, T>, class D = typename detail::OutGradsOf<Op, T>::Type>
struct ShardedBackwardCall {
  /// What follows the operator's name in messages.
  static constexpr const char* kPass = ".backward";

  const Op& op;              ///< the operator
  const In& inputs;          ///< of this rank's rows
  const View<const T>& out;  ///< of this rank's rows
  const S& saved;            ///< likewise
  const D& d_out;            ///< likewise; the operator's OutGrads<T>, if it has them
  const G& grads;            ///< of this rank's rows, written
  const Sharding& rows;      ///< which rank has which rows
  const detail::CollectiveCall& collective;  ///< the operator's name and options, and the executor

  /// The tensors that the pass reads.
  auto read() const { return std::tuple(inputs, out, saved, d_out); }
  /// The tensors that it writes.
  auto written() const { return std::tuple(grads); }
};

/// An operator whose distributed forward pass was included: it has `CommStats forward(const
/// ShardedForwardCall<Op, T>&)`.
template <class Op, class T>
concept HasDistributedForward = requires(const ShardedForwardCall<Op, T>& call) {
  forward(call);
};
/// An operator whose distributed backward pass was included: it has `CommStats backward(const
/// ShardedBackwardCall<Op, T>&)`.
template <class Op, class T>
concept HasDistributedBackward = std::floating_point<T> &&
    requires(const ShardedBackwardCall<Op, T>& call) {
  backward(call);
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
/// Cost: that of the rank's rows, and what `forward` of the operator's ShardedForwardCall
/// documents.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires HasDistributedForward<Op, T> CommStats forward(const Op& op, const InputsOf<Op, T>& inputs,
                                                        Out&& out, const SavedOf<Op, T>& saved,
                                                        const Sharding& rows, E&& executor = {}) {
  const View<T> to(out);
  const detail::CollectiveCall collective(op, executor);
  return forward(ShardedForwardCall<Op, T>{op, inputs, to, saved, rows, collective});
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
/// Cost: that of the rank's rows, and what `backward` of the operator's ShardedBackwardCall
/// documents.
template <class Op, class Out, class T = Scalar<Out>,
          class D = typename fovea::detail::OutGradsFor<Op, T>::Type, class E = Serial>
requires HasDistributedBackward<Op, T> CommStats
backward(const Op& op, const InputsOf<Op, T>& inputs, const Out& out, const SavedOf<Op, T>& saved,
         const D& d_out, const GradsOf<Op, T>& grads, const Sharding& rows, E&& executor = {}) {
  using OutGrads = typename detail::OutGradsOf<Op, T>::Type;
  const View<const T> from(out);
  const detail::CollectiveCall collective(op, executor);
  const auto call = [&](const OutGrads& d) {
    return backward(
        ShardedBackwardCall<Op, T>{op, inputs, from, saved, d, grads, rows, collective});
  };
  if constexpr (std::same_as<D, typename fovea::detail::OutGradsFor<Op, T>::Type>) {
    return call(d_out);
  } else if constexpr (requires { typename Op::template OutGrads<T>; }) {
    return call({.d_out = View<const T>(d_out)});
  } else {
    return call(View<const T>(d_out));
  }
}

}  // namespace distributed

FOVEA_NAMESPACE_END

// In a unit that compiles passes, FOVEA_RANKS_PASSES(FORWARD, Op) or (BACKWARD, Op) instantiates
// one of an operator for float and double.
#define FOVEA_RANKS_FORWARD(Op, T) template CommStats forward(const ShardedForwardCall<Op, T>&);
#define FOVEA_RANKS_BACKWARD(Op, T) template CommStats backward(const ShardedBackwardCall<Op, T>&);
#define FOVEA_RANKS_PASSES(Pass, Op)          \
  FOVEA_IN_FLOAT_UNIT(FOVEA_RANKS_##Pass, Op) \
  FOVEA_IN_DOUBLE_UNIT(FOVEA_RANKS_##Pass, Op)
