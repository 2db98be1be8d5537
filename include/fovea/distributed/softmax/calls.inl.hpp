// SPDX-License-Identifier: MIT
/// \file
/// Included by calls.hpp, which documents it.
#pragma once

#include <memory>
#include <string>
#include <tuple>

#include "fovea/attention/softmax/passes.hpp"
#include "fovea/distributed/messages/broadcast_logits.hpp"
#include "fovea/distributed/messages/whole_call.hpp"
#include "fovea/distributed/softmax/backward_pass.hpp"
#include "fovea/distributed/softmax/calls.hpp"
#include "fovea/distributed/softmax/forward_pass.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

template <class T>
CommStats SoftmaxCalls<T>::forward(const SoftmaxOperatorRef& op, const Modifier& modifier,
                                   const SoftmaxInputs<T>& inputs, const View<T>& out,
                                   const SoftmaxSaved<T>& saved, const Sharding& rows,
                                   const detail::CollectiveCall& call) {
  const std::string text = detail::call_text(op.name(), ".forward", inputs, rows);
  const auto check = [&] {
    detail::check_call(op.name(), inputs, rows, [&](const SoftmaxInputs<T>& own) {
      fovea::SoftmaxPasses<T>::check_tensors(op, own, out, saved, rows.count());
    });
    op.check_pattern(detail::whole_sequence(op, rows));
  };
  if (detail::are_rows_moved(inputs, op.options().alignment, rows)) {
    return detail::run_whole_call(
        rows, call, text, check, std::tuple(inputs), std::tuple(out, saved),
        [&](const auto& all, const auto& to, const auto& kept, const ExecutorRef& threads) {
          fovea::SoftmaxPasses<T>::check(op, all, to, kept);
          fovea::SoftmaxPasses<T>::forward(op, modifier, all, to, kept, threads);
        });
  }
  return detail::run_call(rows, call, text, check, [&](const ExecutorRef& threads) {
    auto pass = std::make_unique<SoftmaxForwardPass<T>>(op, modifier, inputs, out, saved, rows);
    pass->reserve(threads);
    return pass;
  });
}

template <class T>
CommStats SoftmaxBackwardCalls<T>::backward(const SoftmaxOperatorRef& op, const Modifier& modifier,
                                            const SoftmaxInputs<T>& inputs,
                                            const View<const T>& out, const SoftmaxSaved<T>& saved,
                                            const SoftmaxOutGrads<T>& d_out,
                                            const SoftmaxGrads<T>& grads, const Sharding& rows,
                                            const detail::CollectiveCall& call) {
  using Passes = fovea::SoftmaxBackwardPasses<T>;
  const std::string text = detail::call_text(op.name(), ".backward", inputs, rows) +
                           detail::grads_text<T>(d_out, grads.sink);
  const auto check = [&] {
    detail::check_call(op.name(), inputs, rows, [&](const SoftmaxInputs<T>& own) {
      Passes::check_tensors(op, own, out, saved, d_out.d_out, grads, rows.count());
      Passes::check_d_lse(op.name(), own, d_out.d_lse, grads);
    });
    op.check_pattern(detail::whole_sequence(op, rows));
  };
  if (detail::are_rows_moved(inputs, op.options().alignment, rows)) {
    return detail::run_whole_call(
        rows, call, text, check, std::tuple(inputs, out, saved, d_out), std::tuple(grads),
        [&](const auto& all, const auto& from, const auto& kept, const auto& d_from,
            const auto& wanted, const ExecutorRef& threads) {
          Passes::check_tensors(op, all, from, kept, d_from.d_out, wanted, {});
          fovea::SoftmaxPasses<T>::check_sequences(op, all);
          Passes::check_d_lse(op.name(), all, d_from.d_lse, wanted);
          Passes::backward(op, modifier, all, from, kept, d_from.d_out, wanted, d_from.d_lse,
                           threads);
        });
  }
  return detail::run_backward_call(
      rows, call, text, inputs, grads, check,
      [&](const ExecutorRef& threads, const detail::BroadcastLogits& one_row) {
        auto pass = std::make_unique<SoftmaxBackwardPass<T>>(
            op, modifier, inputs, out, saved, d_out.d_out, grads, rows, one_row, d_out.d_lse);
        pass->reserve(threads);
        return pass;
      });
}

FOVEA_PASSES(SoftmaxCalls)
FOVEA_FLOAT_AND_DOUBLE_PASSES(SoftmaxBackwardCalls)

}  // namespace distributed

FOVEA_NAMESPACE_END
