// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of softmax attention over a sharded sequence.
#pragma once

#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/distributed/softmax/calls.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Softmax attention over a pattern in `backward`. d_lse [B, Hq, own rows, 1] is passed by all
/// ranks or none. The gradient of the bias has the rows of the rank's queries; it is rejected for a
/// bias with one row for all queries. That of sinks is that of the whole sequence.
///
/// Cost: 2 (3 D + 2 Dv) flops for each visible pair of the rank's own queries and keys, as in one
/// process. For pairs of two ranks 2 (4 D + 3 Dv): both ranks compute the logit and the gradient of
/// the weight. The same holds for blocks of the pattern whose rows are on several ranks, such as
/// those of long strides. grads.bias costs another forward pass.
///
/// Messages: the rank receives the keys and values that its queries see, then the queries that see
/// its keys, with out, d_out and two numbers (three with d_lse) for each. Gradients of sinks are
/// summed from range to range, kSinkSums numbers for each head. If bias or mask has a row for each
/// query, the rank also receives the remote rows that see its keys, restricted to the columns of
/// these keys.
///
/// Memory: the received rows and a copy of the rank's own, including bias and mask; their gradients
/// as well if the rank has several ranges. Bias and mask are packed for one rank at a time, and
/// address space is reserved for N x N numbers.
template <class Op, class T>
requires PatternAttention<Op, T>
struct DistributedBackward<Op, T> {
  /// Computes the pass.
  static CommStats backward(const Op& op, const SoftmaxInputs<T>& inputs, const View<const T>& out,
                            const SoftmaxSaved<T>& saved, const SoftmaxOutGrads<T>& d_out,
                            const SoftmaxGrads<T>& grads, const Sharding& rows,
                            const detail::CollectiveCall& call) {
    return SoftmaxBackwardCalls<T>::backward(op, op.template score_modifier<T, true>(), inputs, out,
                                             saved, d_out, grads, rows, call);
  }
};

}  // namespace distributed

FOVEA_NAMESPACE_END
