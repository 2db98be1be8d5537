// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of Nystroem attention over a sequence that is spread over ranks. All ranks get
/// the landmarks and what they attend to, and compute alike what is on the landmarks alone.
#pragma once

#include <concepts>

#include "fovea/attention/nystroem.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The forward pass, for tensors of T. `forward` documents it.
template <class T>
class NystroemCalls {
 public:
  /// \param call of the same operator
  static Traffic forward(const NystroemAttention& op, const NystroemInputs<T>& inputs,
                         const View<T>& out, const NystroemSaved<T>& saved, const Rows& rows,
                         const detail::RanksCall& call);
};

/// Computes Nystroem attention over a sequence that is spread over ranks, on all of them together;
/// every rank calls it with its own rows. The bits are those of `op.forward` over the whole
/// sequence, for any number of ranks and any layout.
/// \param inputs q, k and v of this rank's rows, [B, H, own rows, D] in ascending order; key
/// lengths count tokens of the whole sequence
/// \param out [B, Hq, own rows, Dv], written
/// \param saved lse of the rank's rows; the tensors of the landmarks are whole on every rank
/// \param executor as in `forward` of the operator
/// \returns the messages of this rank
/// \throws as `forward` over softmax operators
///
/// Cost: that of the rank's rows, and 8 m^3 flops a step for each head on every rank. From range to
/// range and to all go (m + 1) D numbers for each query head and for each key head, and then m (Dv
/// + 3) for each query head. Keys and values of segments of kKeySegment rows that lie on several
/// ranks travel to that of the first row.
/// Memory: O(B Hq m (D + Dv + m)), a running softmax of m (Dv + 3) numbers of each query head for
/// each of the rank's segments, and with key lengths a byte for each row of the sequence.
template <class Out, class E = Serial, class T = Scalar<Out>>
requires std::floating_point<T> Traffic forward(const NystroemAttention& op,
                                                const InputsOf<NystroemAttention, T>& inputs,
                                                Out&& out,
                                                const SavedOf<NystroemAttention, T>& saved,
                                                const Rows& rows, E&& executor = {}) {
  return NystroemCalls<T>::forward(op, inputs, View<T>(out), saved, rows,
                                   detail::RanksCall(op, executor));
}

/// The same, where nothing is saved.
template <class Out, class E = Serial, class T = Scalar<Out>>
requires std::floating_point<T> Traffic forward(const NystroemAttention& op,
                                                const InputsOf<NystroemAttention, T>& inputs,
                                                Out&& out, const Rows& rows, E&& executor = {}) {
  return forward(op, inputs, View<T>(out), NystroemSaved<T>{}, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/nystroem_forward.inl.hpp"
#endif
