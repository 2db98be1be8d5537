// SPDX-License-Identifier: MIT
/// \file
/// Included by calls.hpp, which documents it.
#pragma once

#include <memory>
#include <string>
#include <tuple>

#include "fovea/attention/indexed/check.hpp"
#include "fovea/attention/smart_bird/rows.hpp"
#include "fovea/distributed/indexed/backward_pass.hpp"
#include "fovea/distributed/messages/whole_call.hpp"
#include "fovea/distributed/smart_bird/calls.hpp"
#include "fovea/distributed/smart_bird/forward_pass.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Describes the parts of a call that must be equal on all ranks.
template <class T>
std::string smart_bird_text(const char* pass, const SmartBirdInputs<T>& in, const Sharding& rows) {
  std::string text = call_text(SmartBirdAttention::name(), pass, in, rows);
  return text.append(", sketch ").append(sizes_text(in.sketch_k));
}

/// Checks the chosen keys: [B, Hq, own rows, K], keys of the whole sequence or -1.
/// \throws std::invalid_argument
template <class T>
void check_choice(const SmartBirdInputs<T>& in, const SmartBirdSaved<T>& saved,
                  const Sharding& rows) {
  const char* const name = SmartBirdAttention::name();
  if (saved.indices.empty()) {
    refuse_missing(name, "indices",
                   "those that forward saved, since the sequence is distributed over ranks");
  }
  check_indices(name, in.q, View<const Index>(saved.indices), rows.count());
}

}  // namespace detail

template <class T>
CommStats DistributedForward<SmartBirdAttention, T>::forward(
    const SmartBirdAttention& op, const SmartBirdInputs<T>& inputs, const View<T>& out,
    const SmartBirdSaved<T>& saved, const Sharding& rows, const detail::CollectiveCall& call) {
  const std::string text = detail::smart_bird_text(".forward", inputs, rows);
  const auto check = [&] {
    if (!inputs.draws.empty()) {
      refuse_given(op.name(), "draws", "the sequence is distributed over ranks");
    }
    detail::check_call(op.name(), inputs, rows,
                       [&](const SmartBirdInputs<T>& own) { op.check(own, out, saved); });
  };
  if (detail::are_rows_moved(inputs, op.options.alignment, rows)) {
    return detail::run_whole_call(rows, call, text, check, std::tuple(inputs),
                                  std::tuple(out, saved),
                                  [&](const auto&... arguments) { op.forward(arguments...); });
  }
  return detail::run_call(rows, call, text, check, [&](const ExecutorRef& threads) {
    return std::make_unique<SmartBirdForwardPass<T>>(op.options, inputs, out, saved, rows, threads);
  });
}

template <class T>
CommStats DistributedBackward<SmartBirdAttention, T>::backward(
    const SmartBirdAttention& op, const SmartBirdInputs<T>& inputs, const View<const T>& out,
    const SmartBirdSaved<T>& saved, const View<const T>& d_out, const SmartBirdGrads<T>& grads,
    const Sharding& rows, const detail::CollectiveCall& call) {
  std::string text = detail::call_text(op.name(), ".backward", inputs, rows);
  text.append(", keys ").append(std::to_string(saved.indices.width()));
  const auto check = [&] {
    detail::check_call(op.name(), inputs, rows, [&](const SmartBirdInputs<T>& own) {
      SmartBirdSaved<T> lse_alone = saved;
      lse_alone.indices = {};
      op.check_backward(own, out, lse_alone, d_out, grads);
    });
    detail::check_choice(inputs, saved, rows);
  };
  return detail::run_call(rows, call, text, check, [&](const ExecutorRef& /*threads*/) {
    auto listed = with_indices(inputs, View<const Index>(saved.indices));
    listed.key_lengths = {};      // chosen keys are visible
    listed.first_positions = {};  // independent of row positions
    return std::make_unique<IndexedBackwardPass<T>>(op.options.scale, listed, out,
                                                    IndexedSaved<T>{saved.lse}, d_out, grads, rows);
  });
}

FOVEA_RANKS_PASSES(FORWARD, SmartBirdAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_RANKS_FORWARD, SmartBirdAttention)
FOVEA_RANKS_PASSES(BACKWARD, SmartBirdAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
