// SPDX-License-Identifier: MIT
/// \file
/// Included by softmax_forward.hpp, where it is documented.
#pragma once

#include <memory>

#include "fovea/attention/softmax/passes.hpp"
#include "fovea/distributed/messages/whole_call.hpp"
#include "fovea/distributed/softmax/backward_pass.hpp"
#include "fovea/distributed/softmax/forward_pass.hpp"
#include "fovea/distributed/softmax_forward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

template <class T>
CommStats softmax_forward(const SoftmaxForwardCall<T>& call,
                          const ScoreModifierArgs<Compute<T>>& modifier) {
  using Passes = fovea::SoftmaxPasses<T>;
  const SoftmaxOperatorRef& op = call.op;
  const auto check = [&] {
    detail::check_call(call, [&](const SoftmaxInputs<T>& own) {
      Passes::check_tensors(op, own, call.out, call.saved, call.rows.count());
    });
    op.check_pattern(detail::whole_sequence(op, call.rows));
  };
  return detail::run_call(
      call, op.options().alignment, detail::call_text(call), check,
      [&](const auto& all, const auto& to, const auto& kept, const ExecutorRef& threads) {
        Passes::check(op, all, to, kept);
        Passes::forward(op, modifier, all, to, kept, threads);
      },
      [&](const ExecutorRef& threads) {
        auto pass = std::make_unique<SoftmaxForwardPass<T>>(op, modifier, call.inputs, call.out,
                                                            call.saved, call.rows);
        pass->reserve(threads);
        return pass;
      });
}

template <class T>
CommStats softmax_backward(const SoftmaxBackwardCall<T>& call,
                           const ScoreModifierArgs<T>& modifier) {
  using Passes = fovea::SoftmaxBackwardPasses<T>;
  const SoftmaxOperatorRef& op = call.op;
  const View<const T>& d_out = call.d_out.d_out;
  const View<const T>& d_lse = call.d_out.d_lse;
  const auto check = [&] {
    detail::check_call(call, [&](const SoftmaxInputs<T>& own) {
      Passes::check_tensors(op, own, call.out, call.saved, d_out, call.grads, call.rows.count());
      Passes::check_d_lse(op.name(), own, d_lse, call.grads);
    });
    op.check_pattern(detail::whole_sequence(op, call.rows));
  };
  return detail::run_backward_call(
      call, op.options().alignment,
      detail::call_text(call) + detail::grads_text<T>(call.d_out, call.grads.sink), check,
      [&](const auto& all, const auto& from, const auto& kept, const auto& d_from,
          const auto& wanted, const ExecutorRef& threads) {
        Passes::check_tensors(op, all, from, kept, d_from.d_out, wanted, {});
        fovea::SoftmaxPasses<T>::check_sequences(op, all);
        Passes::check_d_lse(op.name(), all, d_from.d_lse, wanted);
        Passes::backward(op, modifier, all, from, kept, d_from.d_out, wanted, d_from.d_lse,
                         threads);
      },
      [&](const ExecutorRef& threads, const detail::BroadcastLogits& one_row) {
        auto pass = std::make_unique<SoftmaxBackwardPass<T>>(op, modifier, call.inputs, call.out,
                                                             call.saved, d_out, call.grads,
                                                             call.rows, one_row, d_lse);
        pass->reserve(threads);
        return pass;
      });
}

#define FOVEA_SOFTMAX_FORWARD(function, T) \
  template CommStats function(const SoftmaxForwardCall<T>&, const ScoreModifierArgs<Compute<T>>&);
#define FOVEA_SOFTMAX_BACKWARD(function, T) \
  template CommStats function(const SoftmaxBackwardCall<T>&, const ScoreModifierArgs<T>&);
FOVEA_IN_FLOAT_UNIT(FOVEA_SOFTMAX_FORWARD, softmax_forward)
FOVEA_IN_DOUBLE_UNIT(FOVEA_SOFTMAX_FORWARD, softmax_forward)
FOVEA_IN_SHORT_UNIT(FOVEA_SOFTMAX_FORWARD, softmax_forward)
FOVEA_IN_FLOAT_UNIT(FOVEA_SOFTMAX_BACKWARD, softmax_backward)
FOVEA_IN_DOUBLE_UNIT(FOVEA_SOFTMAX_BACKWARD, softmax_backward)

}  // namespace distributed

FOVEA_NAMESPACE_END
