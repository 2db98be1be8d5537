// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of attention to gathered keys over a sharded sequence. Rows stay in place; the
/// keys that they list are fetched.
#pragma once

#include "fovea/distributed/indexed/calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes attention to gathered keys over a sharded sequence. All ranks call it together, each
/// with its own rows. Results are bit-identical to `op.forward` over the whole sequence, for any
/// number of ranks and any layout.
/// \param inputs q, k, v and the lists of this rank's rows, in ascending order: `indices` are
/// positions in the sequence, and key lengths count keys of the whole sequence
/// \param out [B, Hq, own rows, Dv], written
/// \param saved lse of the rank's rows
/// \param executor as in the operator's `forward`
/// \returns this rank's communication statistics
/// \throws as `forward` over softmax operators, and std::invalid_argument for lists that `op`
/// rejects
///
/// Cost: that of the rank's rows, and a pass over their lists; each visible key and value that they
/// list is received once. Memory: the rank's keys, values and lists once more, and what it
/// receives.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const IndexedAttention& op, const InputsOf<IndexedAttention, T>& inputs, Out&& out,
                const SavedOf<IndexedAttention, T>& saved, const Rows& rows, E&& executor = {}) {
  return IndexedCalls<T>::forward(op, inputs, View<T>(out), saved, rows,
                                  detail::RanksCall(op, executor));
}

/// The same, without saved state.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const IndexedAttention& op, const InputsOf<IndexedAttention, T>& inputs, Out&& out,
                const Rows& rows, E&& executor = {}) {
  return forward(op, inputs, View<T>(out), IndexedSaved<T>{}, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
