// SPDX-License-Identifier: MIT
/// \file
/// Included by luna.hpp, where it is documented.
#pragma once

#include <concepts>
#include <memory>
#include <string>

#include "fovea/distributed/luna.hpp"
#include "fovea/distributed/shared_rows/keys.hpp"
#include "fovea/distributed/shared_rows/queries_backward.hpp"
#include "fovea/distributed/shared_rows/queries_forward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Refuses what a distributed step does not support: packed sequences, and a bias or mask, which
/// would have rows or columns of the sharded sequence.
/// \throws std::invalid_argument
template <class T>
void check_sharded_step(const char* op, const SoftmaxInputs<T>& in) {
  check_sharded(op, in);
  const auto check_none = [&](const char* tensor, bool empty) {
    if (empty) return;
    refuse_given(op, tensor, "the sequence is distributed over ranks");
  };
  check_none("bias", in.bias.empty());
  check_none("mask", in.mask.empty());
}

/// Checks this rank's arguments of the first step. \throws std::invalid_argument
template <class T, class Check>
void check_step(const LunaPack& op, const SoftmaxInputs<T>& in, const Sharding& rows,
                const Check& check_tensors) {
  check_sharded_step(op.name(), in);
  check_own_rows(op.name(), "k", in.k, rows);
  check_own_rows(op.name(), "v", in.v, rows);
  SoftmaxInputs<T> own = in;
  own.key_lengths = {};
  check_tensors(own);
  fovea::detail::check_key_lengths(op.name(), in.key_lengths, in.q.batch(), "q", rows.count(),
                                   "the sequence");
}

/// The same for the second step, whose keys are the packed rows.
template <class T, class Check>
void check_step(const LunaUnpack& op, const SoftmaxInputs<T>& in, const Sharding& rows,
                const Check& check_tensors) {
  check_sharded_step(op.name(), in);
  check_own_rows(op.name(), "q", in.q, rows);
  check_tensors(in);
}

/// The passes of a step, and its packed rows.
template <class Op, class T>
struct LunaPasses;
/// Packed rows are queries.
template <class T>
struct LunaPasses<LunaPack, T> {
  using Forward = SharedQueriesForward<T>;    ///< the forward pass
  using Backward = SharedQueriesBackward<T>;  ///< the backward pass
  /// Their number.
  static Index packed_rows(const SoftmaxInputs<T>& in) { return in.q.rows(); }
};
/// Packed rows are keys.
template <class T>
struct LunaPasses<LunaUnpack, T> {
  using Forward = SharedKeysForward<T>;    ///< the forward pass
  using Backward = SharedKeysBackward<T>;  ///< the backward pass
  /// Their number.
  static Index packed_rows(const SoftmaxInputs<T>& in) { return in.k.rows(); }
};

/// Describes the parts of a step that must be equal on all ranks.
template <class Passes, class Call>
std::string step_text(const Call& call) {
  const std::string packed = std::to_string(Passes::packed_rows(call.inputs));
  return call_text(call).append(", ").append(packed).append(" packed rows");
}

}  // namespace detail

template <class Op, class T>
requires LunaStepAttention<Op, T> CommStats forward(const ShardedForwardCall<Op, T>& call) {
  using Passes = detail::LunaPasses<Op, T>;
  const auto check = [&] {
    detail::check_step(call.op, call.inputs, call.rows, [&](const SoftmaxInputs<T>& own) {
      call.op.check(own, call.out, call.saved);
    });
  };
  return detail::run_call(
      call, detail::step_text<Passes>(call), check, [&](const ExecutorRef& threads) {
        return std::make_unique<typename Passes::Forward>(call.inputs, call.op.softmax_options(),
                                                          call.out, call.saved, call.rows, threads);
      });
}

template <class Op, class T>
requires LunaStepAttention<Op, T> CommStats backward(const ShardedBackwardCall<Op, T>& call) {
  using Passes = detail::LunaPasses<Op, T>;
  const View<const T>& d_out = call.d_out.d_out;
  const View<const T>& d_lse = call.d_out.d_lse;
  std::string text = detail::step_text<Passes>(call);
  if (std::same_as<Op, LunaPack> && !call.grads.q.empty()) text.append(", the gradient of q");
  text.append(detail::grads_text<T>(call.d_out, call.grads.sink));
  const auto check = [&] {
    detail::check_sharded_grads(Op::name(), call.grads);
    detail::check_step(call.op, call.inputs, call.rows, [&](const SoftmaxInputs<T>& own) {
      call.op.check_backward(own, call.out, call.saved, d_out, call.grads);
      call.op.check_d_lse(own, d_lse, call.grads);
    });
  };
  return detail::run_call(call, text, check, [&](const ExecutorRef& threads) {
    return std::make_unique<typename Passes::Backward>(call.inputs, call.op.softmax_options(),
                                                       call.out, call.saved, d_out, call.grads,
                                                       call.rows, threads, d_lse);
  });
}

FOVEA_RANKS_PASSES(FORWARD, LunaPack)
FOVEA_RANKS_PASSES(FORWARD, LunaUnpack)
FOVEA_RANKS_PASSES(BACKWARD, LunaPack)
FOVEA_RANKS_PASSES(BACKWARD, LunaUnpack)

}  // namespace distributed

FOVEA_NAMESPACE_END
