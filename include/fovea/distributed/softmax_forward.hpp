// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of softmax attention over a sharded sequence.
#pragma once

#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/distributed/softmax/calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Softmax attention over a pattern in `forward`. Bias and mask [B, Hq, own rows, N], any extent
/// may be 1 (broadcast), with the rows of the rank's queries and the columns of all keys of the
/// sequence. Cost: each key and value that the rank's rows see is received once. (If rows are not
/// at the positions of their keys, as with CausalAlignment::key_length and first_positions, every
/// rank gets all rows and computes the whole call, for all operators and in `backward`.) Memory: a
/// copy of the rank's keys and values that others see, or that are seen by rows that also see
/// others', and the received ones, which `rows` keeps for the next call; all other rows read in
/// place. If blocks of the pattern see many contiguous keys, only those of two segments of
/// kKeySegment at a time, and nothing is kept.
template <class Op, class T>
requires PatternAttention<Op, T>
struct DistributedForward<Op, T> {
  /// Computes the pass.
  static CommStats forward(const Op& op, const SoftmaxInputs<T>& inputs, const View<T>& out,
                           const SoftmaxSaved<T>& saved, const Sharding& rows,
                           const detail::CollectiveCall& call) {
    return SoftmaxCalls<T>::forward(op, op.template score_modifier<Compute<T>, false>(), inputs,
                                    out, saved, rows, call);
  }
};

}  // namespace distributed

FOVEA_NAMESPACE_END
