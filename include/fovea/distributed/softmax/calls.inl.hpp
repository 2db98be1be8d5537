// SPDX-License-Identifier: MIT
/// \file
/// Included by calls.hpp, where it is documented.
#pragma once

#include <memory>
#include <string>

#include "fovea/attention/softmax/passes.hpp"
#include "fovea/distributed/messages/whole_call.hpp"
#include "fovea/distributed/softmax/calls.hpp"
#include "fovea/distributed/softmax/forward_pass.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

template <class T>
Traffic SoftmaxCalls<T>::forward(const SoftmaxOperatorRef& op, const Modifier& modifier,
                                 const SoftmaxInputs<T>& inputs, const View<T>& out,
                                 const SoftmaxSaved<T>& saved, const Rows& rows,
                                 const detail::RanksCall& call) {
  const std::string text = detail::call_text(op.name(), ".forward", inputs, rows);
  const auto check = [&] {
    detail::check_call(op.name(), inputs, rows, [&](const SoftmaxInputs<T>& own) {
      fovea::SoftmaxPasses<T>::check_tensors(op, own, out, saved, rows.count());
    });
    op.check_pattern(detail::whole_sequence(op, rows));
  };
  if (detail::are_rows_moved(inputs, op.options().alignment, rows)) {
    return detail::forward_whole<T, SoftmaxInputs<T>, SoftmaxSaved<T>>(
        inputs, out, saved, rows, call, text, check,
        [&](const SoftmaxInputs<T>& all, const View<T>& to, const SoftmaxSaved<T>& kept,
            const ExecutorRef& threads) {
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

FOVEA_PASSES(SoftmaxCalls)

}  // namespace distributed

FOVEA_NAMESPACE_END
