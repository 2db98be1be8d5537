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
template <class T, class Call, class Check>
void check_reformer_call(const Call& call, const Check& check_tensors) {
  // Chunks are parts of the whole sequence: the rank's rows need not be a multiple.
  ReformerAttention of_rows = call.op;
  of_rows.options.chunk = 1;
  check_call(call, [&](const ReformerInputs<T>& own) { check_tensors(of_rows, own); });
  check_reformer_options<T>(call.op.name(), call.op.options, call.rows.count());
}

}  // namespace detail

template <class T>
CommStats forward(const ShardedForwardCall<ReformerAttention, T>& call) {
  return forward_by_heads(call, 1, [&] {
    detail::check_reformer_call<T>(call, [&](const ReformerAttention& of_rows, const auto& own) {
      of_rows.check(own, call.out, call.saved);
    });
  });
}

template <class T>
CommStats backward(const ShardedBackwardCall<ReformerAttention, T>& call) {
  return backward_by_heads(call, {.round_lse = call.saved.round_lse}, 1, [&] {
    detail::check_reformer_call<T>(call, [&](const ReformerAttention& of_rows, const auto& own) {
      of_rows.check_backward(own, call.out, call.saved, call.d_out, call.grads);
    });
  });
}

FOVEA_RANKS_PASSES(FORWARD, ReformerAttention)
FOVEA_RANKS_PASSES(BACKWARD, ReformerAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
