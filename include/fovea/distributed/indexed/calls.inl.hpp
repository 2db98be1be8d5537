// SPDX-License-Identifier: MIT
/// \file
/// Included by calls.hpp, which documents it.
#pragma once

#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "fovea/attention/indexed/check.hpp"
#include "fovea/attention/indexed/index_tensor.hpp"
#include "fovea/distributed/indexed/backward_pass.hpp"
#include "fovea/distributed/indexed/calls.hpp"
#include "fovea/distributed/indexed/forward_pass.hpp"
#include "fovea/distributed/messages/whole_call.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Checks this rank's arguments.
/// \param check_tensors called with this rank's inputs, checks all but the lists
/// \throws std::invalid_argument
template <class T, class Check>
void check_indexed(const IndexedInputs<T>& inputs, const Sharding& rows,
                   const Check& check_tensors) {
  const char* const name = IndexedAttention::name();
  check_call(name, inputs, rows, check_tensors);
  check_indices(name, inputs.q, inputs.indices, rows.count());
}

}  // namespace detail

template <class T>
CommStats DistributedForward<IndexedAttention, T>::forward(
    const IndexedAttention& op, const IndexedInputs<T>& inputs, const View<T>& out,
    const IndexedSaved<T>& saved, const Sharding& rows, const detail::CollectiveCall& call) {
  const std::string text = detail::call_text(op.name(), ".forward", inputs, rows);
  const auto check = [&] {
    detail::check_indexed(inputs, rows,
                          [&](const IndexedInputs<T>& own) { op.check_tensors(own, out, saved); });
  };
  if (detail::are_rows_moved(inputs, op.options.alignment, rows)) {
    return detail::run_whole_call(rows, call, text, check, std::tuple(inputs),
                                  std::tuple(out, saved),
                                  [&](const auto&... arguments) { op.forward(arguments...); });
  }
  return detail::run_call(rows, call, text, check, [&](const ExecutorRef& threads) {
    return std::make_unique<IndexedForwardPass<T>>(op.options, inputs, out, saved, rows, threads);
  });
}

template <class T>
CommStats DistributedBackward<IndexedAttention, T>::backward(
    const IndexedAttention& op, const IndexedInputs<T>& inputs, const View<const T>& out,
    const IndexedSaved<T>& saved, const View<const T>& d_out, const IndexedGrads<T>& grads,
    const Sharding& rows, const detail::CollectiveCall& call) {
  std::string text = detail::call_text(op.name(), ".backward", inputs, rows);
  text.append(", keys ").append(std::to_string(inputs.indices.width()));
  const auto check = [&] {
    detail::check_indexed(inputs, rows, [&](const IndexedInputs<T>& own) {
      op.check_backward_tensors(own, out, saved, d_out, grads);
    });
  };
  if (detail::are_rows_moved(inputs, op.options.alignment, rows)) {
    return detail::run_whole_call(rows, call, text, check, std::tuple(inputs, out, saved, d_out),
                                  std::tuple(grads),
                                  [&](const auto&... arguments) { op.backward(arguments...); });
  }
  IndexTensor lists;
  return detail::run_call(rows, call, text, check, [&](const ExecutorRef& /*threads*/) {
    lists = detail::visible_lists(inputs, op.options.causal, rows);
    IndexedInputs<T> visible = inputs;
    visible.key_lengths = {};
    visible.indices = std::as_const(lists).view();
    return std::make_unique<IndexedBackwardPass<T>>(op.options.scale, visible, out, saved, d_out,
                                                    grads, rows);
  });
}

FOVEA_RANKS_PASSES(FORWARD, IndexedAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_RANKS_FORWARD, IndexedAttention)
FOVEA_RANKS_PASSES(BACKWARD, IndexedAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
