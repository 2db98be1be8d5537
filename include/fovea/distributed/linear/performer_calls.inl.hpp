// SPDX-License-Identifier: MIT
/// \file
/// Included by performer_calls.hpp, which documents it.
#pragma once

#include <memory>
#include <string>
#include <tuple>

#include "fovea/distributed/linear/performer_backward_pass.hpp"
#include "fovea/distributed/linear/performer_calls.hpp"
#include "fovea/distributed/linear/performer_forward_pass.hpp"
#include "fovea/distributed/messages/whole_call.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Describes the parts of a call that must be equal on all ranks.
template <class T>
std::string performer_text(const char* op, const char* pass, const PerformerInputs<T>& in,
                           const Sharding& rows) {
  std::string text = call_text(op, pass, in, rows);
  return text.append(", ").append(std::to_string(in.projection.rows())).append(" features");
}

}  // namespace detail

template <class T>
CommStats PerformerCalls<T>::forward(const PerformerSettings& op, const PerformerInputs<T>& inputs,
                                     const View<T>& out, const Sharding& rows,
                                     const detail::CollectiveCall& call) {
  using In = PerformerInputs<T>;
  const std::string text = detail::performer_text(op.name, ".forward", inputs, rows);
  const auto check = [&] {
    detail::check_call(op.name, inputs, rows,
                       [&](const In& own) { PerformerPasses<T>::check(op, own, out, {}); });
  };
  if (detail::are_rows_moved(inputs, op.far_field.alignment, rows)) {
    return detail::run_whole_call(rows, call, text, check, std::tuple(inputs), std::tuple(out),
                                  [&](const auto& all, const auto& to, const ExecutorRef& threads) {
                                    PerformerPasses<T>::check(op, all, to, {});
                                    PerformerPasses<T>::forward(op, all, to, {}, threads);
                                  });
  }
  return detail::run_call(rows, call, text, check, [&](const ExecutorRef& threads) {
    return std::make_unique<PerformerForwardPass<T>>(op, inputs, out, rows, threads);
  });
}

template <class T>
CommStats PerformerCalls<T>::backward(const PerformerSettings& op, const PerformerInputs<T>& inputs,
                                      const View<const T>& out, const View<const T>& d_out,
                                      const PerformerGrads<T>& grads, const Sharding& rows,
                                      const detail::CollectiveCall& call) {
  using In = PerformerInputs<T>;
  std::string text = detail::performer_text(op.name, ".backward", inputs, rows);
  if (!grads.projection.empty()) text.append(", gradient of the projection");
  const auto check = [&] {
    detail::check_call(op.name, inputs, rows, [&](const In& own) {
      PerformerBackwardPasses<T>::check(op, own, out, {}, d_out, grads);
    });
  };
  if (detail::are_rows_moved(inputs, op.far_field.alignment, rows)) {
    return detail::run_whole_call(
        rows, call, text, check, std::tuple(inputs, out, d_out), std::tuple(grads),
        [&](const auto& all, const auto& from, const auto& d_from, const auto& wanted,
            const ExecutorRef& threads) {
          PerformerBackwardPasses<T>::check(op, all, from, {}, d_from, wanted);
          PerformerBackwardPasses<T>::backward(op, all, {}, d_from, wanted, threads);
        });
  }
  return detail::run_call(rows, call, text, check, [&](const ExecutorRef& threads) {
    return std::make_unique<PerformerBackwardPass<T>>(op, inputs, d_out, grads, rows, threads);
  });
}

FOVEA_FLOAT_AND_DOUBLE_PASSES(PerformerCalls)

}  // namespace distributed

FOVEA_NAMESPACE_END
