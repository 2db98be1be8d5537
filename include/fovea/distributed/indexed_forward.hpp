// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of attention over lists of keys over a sequence that is spread over ranks. Rows
/// stay where they are; the keys that they list come to them.
#pragma once

#include "fovea/distributed/indexed/calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes attention over lists of keys over a sequence that is spread over ranks, on all of them
/// together; every rank calls it with its own rows. The bits are those of `op.forward` over the
/// whole sequence, for any number of ranks and any layout.
/// \param inputs q, k, v and the lists of this rank's rows, in ascending order: `indices` are
/// positions in the sequence, and key lengths count keys of the whole sequence
/// \param out [B, Hq, own rows, Dv], written
/// \param saved lse of the rank's rows
/// \param executor as in `forward` of the operator
/// \returns the messages of this rank
/// \throws as `forward` over softmax operators, and std::invalid_argument for lists that `op` does
/// not take
///
/// Cost: that of the rank's rows, and a pass over their lists; each key and value that they name
/// and that is visible is received once. Memory: the rank's keys, values and lists once more, and
/// what it receives.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const IndexedAttention& op, const InputsOf<IndexedAttention, T>& inputs, Out&& out,
                const SavedOf<IndexedAttention, T>& saved, const Rows& rows, E&& executor = {}) {
  return IndexedCalls<T>::forward(op, inputs, View<T>(out), saved, rows,
                                  detail::RanksCall(op, executor));
}

/// The same, where nothing is saved.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const IndexedAttention& op, const InputsOf<IndexedAttention, T>& inputs, Out&& out,
                const Rows& rows, E&& executor = {}) {
  return forward(op, inputs, View<T>(out), IndexedSaved<T>{}, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
