// SPDX-License-Identifier: MIT
/// \file
/// Included by reformer.hpp, where it is documented.
#pragma once

#include "fovea/attention/reformer/check.hpp"
#include "fovea/distributed/messages/head_all_to_all.hpp"
#include "fovea/distributed/reformer.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Checks this rank's arguments: its rows, and the sizes of the whole sequence.
/// \param check_tensors called with the operator and inputs of a call with only this rank's rows
/// \throws std::invalid_argument
template <class T, class Check>
void check_reformer_call(const ReformerAttention& op, const ReformerInputs<T>& in,
                         const Sharding& rows, const Check& check_tensors) {
  // Chunks are parts of the whole sequence: the rank's rows need not be a multiple.
  ReformerAttention of_rows = op;
  of_rows.options.chunk = 1;
  check_call(op.name(), in, rows,
             [&](const ReformerInputs<T>& own) { check_tensors(of_rows, own); });
  check_reformer_options<T>(op.name(), op.options, rows.count());
}

}  // namespace detail

template <class T>
CommStats DistributedForward<ReformerAttention, T>::forward(
    const ReformerAttention& op, const ReformerInputs<T>& inputs, const View<T>& out,
    const ReformerSaved<T>& saved, const Sharding& rows, const detail::CollectiveCall& call) {
  return forward_by_heads(op, inputs, out, saved, rows, 1, call, [&] {
    detail::check_reformer_call(
        op, inputs, rows,
        [&](const ReformerAttention& of_rows, const auto& own) { of_rows.check(own, out, saved); });
  });
}

template <class T>
CommStats DistributedBackward<ReformerAttention, T>::backward(
    const ReformerAttention& op, const ReformerInputs<T>& inputs, const View<const T>& out,
    const ReformerSaved<T>& saved, const View<const T>& d_out, const ReformerGrads<T>& grads,
    const Sharding& rows, const detail::CollectiveCall& call) {
  const ReformerSaved<T> read{.round_lse = saved.round_lse};
  return backward_by_heads(op, inputs, out, read, d_out, grads, rows, 1, call, [&] {
    detail::check_reformer_call(op, inputs, rows,
                                [&](const ReformerAttention& of_rows, const auto& own) {
                                  of_rows.check_backward(own, out, saved, d_out, grads);
                                });
  });
}

FOVEA_RANKS_PASSES(FORWARD, ReformerAttention)
FOVEA_RANKS_PASSES(BACKWARD, ReformerAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
