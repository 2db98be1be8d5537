// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of softmax attention over a sequence that is spread over ranks.
#pragma once

#include "fovea/distributed/softmax/calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Computes attention over a sequence that is spread over ranks, on all of them together; every
/// rank calls it with its own rows. The bits are those of `op.forward` over the whole sequence, for
/// any number of ranks and any layout.
/// \param op an operator of softmax attention over a pattern
/// \param inputs q, k and v of this rank's rows, [B, H, own rows, D] in ascending order; key
/// lengths count keys of the whole sequence; bias and mask [B, Hq, own rows, N], each of which may
/// be 1 instead, have the rows of the rank's queries and the columns of all keys of the sequence
/// \param out [B, Hq, own rows, Dv], written
/// \param saved lse [B, Hq, own rows, 1], written if it has a tensor
/// \param executor runs the blocks of this rank, as in `forward` of the operator
/// \returns the messages of this rank
/// \throws on all ranks alike what one of them throws, with its number, before anything is written:
/// std::invalid_argument for inputs that `op` refuses, for packed sequences, for
/// tensors that do not have the rank's rows, for calls that differ between ranks, and for an arena
/// in use or too small; std::bad_alloc. Later, what a user's pattern or executor throws while it
/// computes. std::runtime_error if MPI fails.
///
/// Cost: that of the rank's rows, and each key and value that they see received once.
/// (Where rows are not at the positions of their keys, as CausalAlignment::key_length and
/// first_positions may say, every rank gets all rows and computes the whole call; so it is for all
/// operators, and in `backward`.)
/// Memory: a copy of the rank's keys and values that others see, or that rows see which see
/// others', too, and what these receive, which `rows` keeps for the next call; all other rows read
/// them where they are. Where a block of the pattern sees neighbouring keys alone, and many, those
/// of two segments of kKeySegment at a time, and nothing is kept.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires PatternAttention<Op, T> Traffic forward(const Op& op, const InputsOf<Op, T>& inputs,
                                                 Out&& out, const SavedOf<Op, T>& saved,
                                                 const Rows& rows, E&& executor = {}) {
  return SoftmaxCalls<T>::forward(op, op.template score_modifier<Compute<T>, false>(), inputs,
                                  View<T>(out), saved, rows, detail::RanksCall(op, executor));
}

/// The same, where nothing is saved.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires PatternAttention<Op, T> Traffic forward(const Op& op, const InputsOf<Op, T>& inputs,
                                                 Out&& out, const Rows& rows, E&& executor = {}) {
  return forward<Op>(op, inputs, View<T>(out), SoftmaxSaved<T>{}, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
