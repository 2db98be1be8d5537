// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of Smart Bird attention over a sharded sequence. The few columns of the sketch
/// are sent to all ranks that may choose from them; each rank chooses for its own rows, and
/// requests the chosen keys and values.
#pragma once

#include "fovea/distributed/smart_bird/calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes Smart Bird attention over a sharded sequence. All ranks call it together, each with its
/// own rows. Results are bit-identical to `op.forward` over the whole sequence, for any number of
/// ranks and any layout.
/// \param inputs q, k, v and the sketch of this rank's rows, in ascending order; key lengths count
/// keys of the whole sequence
/// \param out [B, Hq, own rows, Dv], written
/// \param saved lse and the chosen keys (positions in the sequence) of the rank's rows
/// \param executor as in the operator's `forward`
/// \returns this rank's communication statistics
/// \throws as `forward` over softmax operators; std::invalid_argument also if draws are given
///
/// Cost: that of the rank's rows; the sketch's keys are prepared once for each of its ranges.
/// Memory: the keys of the sketch of all rows, the rank's keys and values once more, and those that
/// its rows have chosen.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const SmartBirdAttention& op, const InputsOf<SmartBirdAttention, T>& inputs,
                Out&& out, const SavedOf<SmartBirdAttention, T>& saved, const Rows& rows,
                E&& executor = {}) {
  return SmartBirdCalls<T>::forward(op, inputs, View<T>(out), saved, rows,
                                    detail::RanksCall(op, executor));
}

/// The same, without saved state.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const SmartBirdAttention& op, const InputsOf<SmartBirdAttention, T>& inputs,
                Out&& out, const Rows& rows, E&& executor = {}) {
  return forward(op, inputs, View<T>(out), SmartBirdSaved<T>{}, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
