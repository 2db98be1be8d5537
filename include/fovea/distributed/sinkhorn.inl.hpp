// SPDX-License-Identifier: MIT
/// \file
/// Included by sinkhorn.hpp, where it is documented.
#pragma once

#include "fovea/attention/sinkhorn/check.hpp"
#include "fovea/distributed/messages/head_all_to_all.hpp"
#include "fovea/distributed/sinkhorn.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Checks this rank's arguments: its rows, and the sizes of the whole sequence.
/// \param check_tensors called with the inputs without key lengths, which are the whole sequence's
///  \throws std::invalid_argument
template <class T, class Call, class Check>
void check_sinkhorn_call(const Call& call, const Check& check_tensors) {
  const char* const name = call.op.name();
  check_call(call, [&](const SinkhornInputs<T>& own) {
    check_sinkhorn_rows(name, own);
    check_tensors(own);
  });
  const Sharding& rows = call.rows;
  check_sinkhorn_options<T>(name, call.op.options, rows.count(), call.inputs.key_lengths);
  const Index block = call.op.options.block;
  check_sorting(name, call.inputs, blocks_of(rows.layout(), block).count(rows.ranks().rank()),
                rows.count() / block);
}

}  // namespace detail

template <class T>
CommStats forward(const ShardedForwardCall<SinkhornAttention, T>& call) {
  return forward_by_heads(call, call.op.options.block, [&] {
    detail::check_sinkhorn_call<T>(call, [&](const SinkhornInputs<T>& own) {
      check_outputs(call.op.name(), own, call.out, call.saved);
    });
  });
}

template <class T>
CommStats backward(const ShardedBackwardCall<SinkhornAttention, T>& call) {
  return backward_by_heads(call, call.saved, call.op.options.block, [&] {
    detail::check_sinkhorn_call<T>(call, [&](const SinkhornInputs<T>& own) {
      check_softmax_backward(call.op.name(), own, call.out, call.saved, call.d_out, call.grads);
    });
  });
}

FOVEA_RANKS_PASSES(FORWARD, SinkhornAttention)
FOVEA_RANKS_PASSES(BACKWARD, SinkhornAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
