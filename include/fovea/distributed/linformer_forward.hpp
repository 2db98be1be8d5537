// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of Linformer attention over a sequence that is spread over ranks. Rows stay
/// where they are; what travels is the projected keys and values, and rows where ranges end within
/// a chain of kChain tokens.
#pragma once

#include <concepts>

#include "fovea/attention/linformer.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The forward pass, for tensors of T. `forward` documents it.
template <class T>
class LinformerCalls {
 public:
  /// \param call of the same operator
  static Traffic forward(const LinformerAttention& op, const LinformerInputs<T>& inputs,
                         const View<T>& out, const LinformerSaved<T>& saved, const Rows& rows,
                         const detail::RanksCall& call);
};

/// Computes Linformer attention over a sequence that is spread over ranks, on all of them together;
/// every rank calls it with its own rows. The bits are those of `op.forward` over the whole
/// sequence, for any number of ranks and any layout.
/// \param inputs q, k and v of this rank's rows, [B, H, own rows, D] in ascending order, and the
/// columns of E and F that these meet, [1, 1 or Hk, P, own rows], with all rows P even where a rank
/// has no tokens; key lengths count tokens of the whole sequence
/// \param out [B, Hq, own rows, Dv], written
/// \param saved lse of the rank's rows; the projected keys and values, which all ranks have whole.
/// The ranks may save different ones
/// \param executor as in `forward` of the operator
/// \returns the messages of this rank
/// \throws as `forward` over softmax operators
///
/// Cost: that of the rank's rows. The projected keys and values, B Hk P (D + Dv) numbers, are sent
/// at each end of a range of rows, up to 64 rows of some heads at a time, and then to all ranks;
/// ranks wait for each other unless there are many more such parts than a rank has threads. Where a
/// range does not begin at a multiple of kChain, fewer rows than that travel, with their columns of
/// E and F. Memory: twice the projected keys and values, and what travels.
template <class Out, class E = Serial, class T = Scalar<Out>>
requires std::floating_point<T> Traffic forward(const LinformerAttention& op,
                                                const InputsOf<LinformerAttention, T>& inputs,
                                                Out&& out,
                                                const SavedOf<LinformerAttention, T>& saved,
                                                const Rows& rows, E&& executor = {}) {
  return LinformerCalls<T>::forward(op, inputs, View<T>(out), saved, rows,
                                    detail::RanksCall(op, executor));
}

/// The same, where nothing is saved.
template <class Out, class E = Serial, class T = Scalar<Out>>
requires std::floating_point<T> Traffic forward(const LinformerAttention& op,
                                                const InputsOf<LinformerAttention, T>& inputs,
                                                Out&& out, const Rows& rows, E&& executor = {}) {
  return forward(op, inputs, View<T>(out), LinformerSaved<T>{}, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/linformer_forward.inl.hpp"
#endif
