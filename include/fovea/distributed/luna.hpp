// SPDX-License-Identifier: MIT
/// \file
/// Luna attention over a sequence that is spread over ranks, all of which have the packed rows.
#pragma once

#include <concepts>

#include "fovea/attention/luna.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/distributed/softmax/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// A step of Luna attention.
template <class Op, class T>
concept LunaStepAttention = (std::same_as<Op, LunaPack> ||
                             std::same_as<Op, LunaUnpack>)&&std::floating_point<T>;

/// Both passes of a step, for tensors of T. `forward` and `backward` document them.
template <class Op, class T>
class LunaCalls {
 public:
  /// \param call of the same operator
  static Traffic forward(const Op& op, const SoftmaxInputs<T>& inputs, const View<T>& out,
                         const SoftmaxSaved<T>& saved, const Rows& rows,
                         const detail::RanksCall& call);
  /// \param call of the same operator
  static Traffic backward(const Op& op, const SoftmaxInputs<T>& inputs, const View<const T>& out,
                          const SoftmaxSaved<T>& saved, const SoftmaxOutGrads<T>& d_out,
                          const SoftmaxGrads<T>& grads, const Rows& rows,
                          const detail::RanksCall& call);
};

/// Computes a step of Luna attention over a sequence that is spread over ranks, on all of them
/// together. The bits are those of `op.forward` over the whole sequence, for any number of ranks
/// and any layout.
/// \param op LunaPack or LunaUnpack
/// \param inputs of LunaPack: q [B, Hq, P, D] of the packed rows, which must be the same on all
/// ranks, and k and v of this rank's rows, in ascending order; key lengths count keys of the whole
/// sequence. Of LunaUnpack: q of this rank's rows, and k and v [B, Hk, P, ...] of the packed rows,
/// the same on all ranks. Neither takes a bias or mask over ranks
/// \param out of LunaPack [B, Hq, P, Dv], which all ranks get; of LunaUnpack [B, Hq, own rows, Dv]
/// \param saved lse of these rows, written if it has a tensor
/// \param executor as in `forward` of the operator
/// \returns the messages of this rank
/// \throws as `forward` over softmax operators
///
/// Cost: that of the rank's rows. LunaUnpack sends nothing. Of LunaPack a running softmax of P (Dv
/// + 3) numbers for each query head goes from range to range, in the order of the rows, and to all
/// ranks. All ranks compute at once, and wait for each other only to merge. Keys and values of
/// segments of kKeySegment rows that lie on several ranks travel to that of the first row.
/// Memory: the segments that lie on several ranks, and of LunaPack a running softmax of each query
/// head for each of the rank's segments; of LunaUnpack the scratch of `forward` of the operator for
/// each range of the rank's rows.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires LunaStepAttention<Op, T> Traffic forward(const Op& op, const InputsOf<Op, T>& inputs,
                                                  Out&& out, const SavedOf<Op, T>& saved,
                                                  const Rows& rows, E&& executor = {}) {
  return LunaCalls<Op, T>::forward(op, inputs, View<T>(out), saved, rows,
                                   detail::RanksCall(op, executor));
}

/// The same, where nothing is saved.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires LunaStepAttention<Op, T> Traffic forward(const Op& op, const InputsOf<Op, T>& inputs,
                                                  Out&& out, const Rows& rows, E&& executor = {}) {
  return forward<Op>(op, inputs, View<T>(out), SoftmaxSaved<T>{}, rows, executor);
}

/// Computes the gradients of a step of Luna attention over a sequence that is spread over ranks, on
/// all of them together. The bits are those of `op.backward` over the whole sequence.
/// \param op, inputs as in `forward`   \param out, saved as `forward` wrote them, with lse
/// \param d_out the gradient of the loss with respect to out, or with d_lse, as in `backward` over
/// softmax operators; of LunaPack the same on all ranks
/// \param grads of rows that are spread: those of this rank; of packed rows: their sums over all
/// ranks. Those that have a tensor are written; the ranks may want different ones, but q of
/// LunaPack and sink [Hq], which is that of the whole sequence, all or none
/// \param executor as in `forward`   \returns the messages of this rank
/// \throws as `forward`, also std::invalid_argument if the gradient of a bias is asked for
///
/// Cost: that of the rank's rows. The sums of packed rows go from range to range and to all ranks:
/// of LunaPack P D numbers for each query head, of LunaUnpack P rows of D and of Dv numbers,
/// rounded up to whole vectors, for each key head, which go over the ranges once for each of its
/// query heads. All ranks compute at once, and wait for each other only to add up. Rows of segments
/// that lie on several ranks travel to that of the first row, and their gradients back: segments of
/// kKeySegment keys, or blocks of block_rows(N) queries. Where lse is large, LunaPack sends 4 P
/// numbers for each query head more. Memory: the rank's rows twice, and what its blocks add to the
/// packed rows: for each block of 512 rows (of less, if N is below 4096) as many numbers as in one
/// sum.
template <class Op, class Out, class T = Scalar<Out>, class D = SoftmaxOutGrads<T>,
          class E = Serial>
requires LunaStepAttention<Op, T> Traffic backward(const Op& op, const InputsOf<Op, T>& inputs,
                                                   const Out& out, const SavedOf<Op, T>& saved,
                                                   const D& d_out, const GradsOf<Op, T>& grads,
                                                   const Rows& rows, E&& executor = {}) {
  return LunaCalls<Op, T>::backward(op, inputs, View<const T>(out), saved,
                                    detail::out_grads<T>(d_out), grads, rows,
                                    detail::RanksCall(op, executor));
}

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/luna.inl.hpp"
#endif
