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
template <class T, class Check>
void check_sinkhorn_call(const SinkhornAttention& op, const SinkhornInputs<T>& in,
                         const Sharding& rows, const Check& check_tensors) {
  check_call(op.name(), in, rows, [&](const SinkhornInputs<T>& own) {
    check_sinkhorn_rows(op.name(), own);
    check_tensors(own);
  });
  check_sinkhorn_options<T>(op.name(), op.options, rows.count(), in.key_lengths);
  const Index block = op.options.block;
  check_sorting(op.name(), in, blocks_of(rows.layout(), block).count(rows.ranks().rank()),
                rows.count() / block);
}

}  // namespace detail

template <class T>
CommStats DistributedForward<SinkhornAttention, T>::forward(
    const SinkhornAttention& op, const SinkhornInputs<T>& inputs, const View<T>& out,
    const SoftmaxSaved<T>& saved, const Sharding& rows, const detail::CollectiveCall& call) {
  return forward_by_heads(op, inputs, out, saved, rows, op.options.block, call, [&] {
    detail::check_sinkhorn_call(op, inputs, rows, [&](const SinkhornInputs<T>& own) {
      check_outputs(op.name(), own, out, saved);
    });
  });
}

template <class T>
CommStats DistributedBackward<SinkhornAttention, T>::backward(
    const SinkhornAttention& op, const SinkhornInputs<T>& inputs, const View<const T>& out,
    const SoftmaxSaved<T>& saved, const View<const T>& d_out, const SinkhornGrads<T>& grads,
    const Sharding& rows, const detail::CollectiveCall& call) {
  return backward_by_heads(op, inputs, out, saved, d_out, grads, rows, op.options.block, call, [&] {
    detail::check_sinkhorn_call(op, inputs, rows, [&](const SinkhornInputs<T>& own) {
      check_softmax_backward(op.name(), own, out, saved, d_out, grads);
    });
  });
}

FOVEA_RANKS_PASSES(FORWARD, SinkhornAttention)
FOVEA_RANKS_PASSES(BACKWARD, SinkhornAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
