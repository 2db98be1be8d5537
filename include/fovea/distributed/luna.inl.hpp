// SPDX-License-Identifier: MIT
/// \file
/// Included by luna.hpp, where it is documented.
#pragma once

#include <concepts>
#include <memory>
#include <string>

#include "fovea/distributed/luna.hpp"
#include "fovea/distributed/shared_rows/keys_backward.hpp"
#include "fovea/distributed/shared_rows/keys_forward.hpp"
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

/// The packed rows of a step.
template <class T>
Index packed_rows(const LunaPack& /*op*/, const SoftmaxInputs<T>& in) {
  return in.q.rows();
}
/// The same for the second step.
template <class T>
Index packed_rows(const LunaUnpack& /*op*/, const SoftmaxInputs<T>& in) {
  return in.k.rows();
}

/// Describes the parts of a step that must be equal on all ranks.
template <class Op, class T>
std::string step_text(const Op& op, const char* pass, const SoftmaxInputs<T>& in,
                      const Sharding& rows) {
  std::string text = call_text(op.name(), pass, in, rows);
  return text.append(", ").append(std::to_string(packed_rows(op, in))).append(" packed rows");
}

/// The passes of a step.
template <class Op, class T>
struct LunaPasses;
/// Packed rows are queries.
template <class T>
struct LunaPasses<LunaPack, T> {
  using Forward = SharedQueriesForward<T>;    ///< the forward pass
  using Backward = SharedQueriesBackward<T>;  ///< the backward pass
};
/// Packed rows are keys.
template <class T>
struct LunaPasses<LunaUnpack, T> {
  using Forward = SharedKeysForward<T>;    ///< the forward pass
  using Backward = SharedKeysBackward<T>;  ///< the backward pass
};

}  // namespace detail

template <class Op, class T>
CommStats LunaCalls<Op, T>::forward(const Op& op, const SoftmaxInputs<T>& inputs,
                                    const View<T>& out, const SoftmaxSaved<T>& saved,
                                    const Sharding& rows, const detail::CollectiveCall& call) {
  return detail::run_call(
      rows, call, detail::step_text(op, ".forward", inputs, rows),
      [&] {
        detail::check_step(op, inputs, rows,
                           [&](const SoftmaxInputs<T>& own) { op.check(own, out, saved); });
      },
      [&](const ExecutorRef& threads) {
        return std::make_unique<typename detail::LunaPasses<Op, T>::Forward>(
            inputs, op.softmax_options(), out, saved, rows, threads);
      });
}

template <class Op, class T>
CommStats LunaCalls<Op, T>::backward(const Op& op, const SoftmaxInputs<T>& inputs,
                                     const View<const T>& out, const SoftmaxSaved<T>& saved,
                                     const SoftmaxOutGrads<T>& d_out, const SoftmaxGrads<T>& grads,
                                     const Sharding& rows, const detail::CollectiveCall& call) {
  std::string text = detail::step_text(op, ".backward", inputs, rows);
  if (std::same_as<Op, LunaPack> && !grads.q.empty()) text.append(", the gradient of q");
  text.append(detail::grads_text<T>(d_out, grads.sink));
  return detail::run_call(
      rows, call, text,
      [&] {
        detail::check_sharded_grads(Op::name(), grads);
        detail::check_step(op, inputs, rows, [&](const SoftmaxInputs<T>& own) {
          op.check_backward(own, out, saved, d_out.d_out, grads);
          op.check_d_lse(own, d_out.d_lse, grads);
        });
      },
      [&](const ExecutorRef& threads) {
        return std::make_unique<typename detail::LunaPasses<Op, T>::Backward>(
            inputs, op.softmax_options(), out, saved, d_out.d_out, grads, rows, threads,
            d_out.d_lse);
      });
}

#define FOVEA_LUNA_CALLS(Op, T) template class LunaCalls<Op, T>;
FOVEA_IN_FLOAT_UNIT(FOVEA_LUNA_CALLS, LunaPack)
FOVEA_IN_FLOAT_UNIT(FOVEA_LUNA_CALLS, LunaUnpack)
FOVEA_IN_DOUBLE_UNIT(FOVEA_LUNA_CALLS, LunaPack)
FOVEA_IN_DOUBLE_UNIT(FOVEA_LUNA_CALLS, LunaUnpack)

}  // namespace distributed

FOVEA_NAMESPACE_END
