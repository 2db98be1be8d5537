// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of softmax attention over a sharded sequence.
#pragma once

#include "fovea/distributed/softmax/calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes attention over a sharded sequence. All ranks call it together, each with its own rows.
/// Results are bit-identical to `op.forward` over the whole sequence, for any number of ranks and
/// any layout.
/// \param op an operator of softmax attention over a pattern
/// \param inputs q, k and v of this rank's rows, [B, H, own rows, D] in ascending order; key
/// lengths count keys of the whole sequence; bias and mask [B, Hq, own rows, N], any extent may be
/// 1 (broadcast), with the rows of the rank's queries and the columns of all keys of the sequence
/// \param out [B, Hq, own rows, Dv], written
/// \param saved lse [B, Hq, own rows, 1], written if it has a tensor
/// \param executor runs the blocks of this rank, as in `forward` of the operator
/// \returns this rank's communication statistics
/// \throws on all ranks what one of them throws, with its number, before anything is written:
/// std::invalid_argument for inputs that `op` rejects, for packed sequences, for tensors that do
/// not have the rank's rows, for calls that differ between ranks, and for an arena in use or too
/// small; std::bad_alloc. Later, what a user's pattern or executor throws while computing.
/// std::runtime_error if MPI fails.
///
/// Cost: that of the rank's rows, and each key and value that they see received once. (If rows are
/// not at the positions of their keys, as with CausalAlignment::key_length and first_positions,
/// every rank gets all rows and computes the whole call, for all operators and in `backward`.)
/// Memory: a copy of the rank's keys and values that others see, or that are seen by rows that also
/// see others', and the received ones, which `rows` keeps for the next call; all other rows read in
/// place. If blocks of the pattern see many contiguous keys, only those of two segments of
/// kKeySegment at a time, and nothing is kept.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires PatternAttention<Op, T> Traffic forward(const Op& op, const InputsOf<Op, T>& inputs,
                                                 Out&& out, const SavedOf<Op, T>& saved,
                                                 const Rows& rows, E&& executor = {}) {
  return SoftmaxCalls<T>::forward(op, op.template score_modifier<Compute<T>, false>(), inputs,
                                  View<T>(out), saved, rows, detail::RanksCall(op, executor));
}

/// The same, without saved state.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires PatternAttention<Op, T> Traffic forward(const Op& op, const InputsOf<Op, T>& inputs,
                                                 Out&& out, const Rows& rows, E&& executor = {}) {
  return forward<Op>(op, inputs, View<T>(out), SoftmaxSaved<T>{}, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
