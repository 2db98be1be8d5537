// SPDX-License-Identifier: MIT
/// \file
/// Included by calls.hpp, which documents it.
#pragma once

#include <memory>
#include <string>
#include <tuple>

#include "fovea/attention/fmm/passes.hpp"
#include "fovea/distributed/linear/backward_pass.hpp"
#include "fovea/distributed/linear/calls.hpp"
#include "fovea/distributed/linear/forward_pass.hpp"
#include "fovea/distributed/messages/whole_call.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// The kind of blend-logit gradients, compared across ranks: none, one per head, or one per column.
template <class Settings, class T>
const char* logits_text(const Settings& op, const LinearFamilyInputs<T>& in,
                        const LinearFamilyGrads<T>& grads) {
  if constexpr (Settings::kHasNear) {
    if (!wants_logits(grads)) return "";
    return op.blend(in).is_same_for_columns() ? ", gradients of logits"
                                              : ", gradients of logits of columns";
  }
  return "";
}

/// Whether a call saved the near field.
template <class Saved>
bool is_near_saved(const Saved& saved) {
  if constexpr (requires { saved.near_out; }) {
    return !saved.near_out.empty() && !saved.near_lse.empty();
  }
  return false;
}

}  // namespace detail

template <class Passes>
CommStats LinearCalls<Passes>::forward(const Settings& op, const LinearFamilyInputs<T>& inputs,
                                       const View<T>& out, const Saved& saved, const Sharding& rows,
                                       const detail::CollectiveCall& call) {
  using In = LinearFamilyInputs<T>;
  const std::string text = detail::call_text(op.name, ".forward", inputs, rows);
  const auto check = [&] {
    detail::check_call(op.name, inputs, rows,
                       [&](const In& own) { Passes::check(op, own, out, saved); });
  };
  if (detail::are_rows_moved(inputs, op.far_field.alignment, rows)) {
    return detail::run_whole_call(
        rows, call, text, check, std::tuple(inputs), std::tuple(out, saved),
        [&](const auto& all, const auto& to, const auto& kept, const ExecutorRef& threads) {
          Passes::check(op, all, to, kept);
          Passes::forward(op, all, to, kept, threads);
        });
  }
  return detail::run_call(rows, call, text, check, [&](const ExecutorRef& threads) {
    return std::make_unique<LinearForwardPass<Passes>>(op, inputs, out, saved, rows, threads);
  });
}

template <class Passes>
CommStats LinearBackwardCalls<Passes>::backward(
    const Settings& op, const LinearFamilyInputs<T>& inputs, const View<const T>& out,
    const Saved& saved, const View<const T>& d_out, const LinearFamilyGrads<T>& grads,
    const Sharding& rows, const detail::CollectiveCall& call) {
  using In = LinearFamilyInputs<T>;
  const bool is_saved = detail::is_near_saved(saved);
  std::string text = detail::call_text(op.name, ".backward", inputs, rows);
  text.append(is_saved ? ", near field saved" : "");
  text.append(detail::logits_text(op, inputs, grads));
  const auto check = [&] {
    detail::check_call(op.name, inputs, rows,
                       [&](const In& own) { Passes::check(op, own, out, saved, d_out, grads); });
  };
  if (detail::are_rows_moved(inputs, op.far_field.alignment, rows)) {
    return detail::run_whole_call(
        rows, call, text, check, std::tuple(inputs, out, is_saved ? saved : Saved{}, d_out),
        std::tuple(grads),
        [&](const auto& all, const auto& from, const auto& kept, const auto& d_from,
            const auto& wanted, const ExecutorRef& threads) {
          Passes::check(op, all, from, kept, d_from, wanted);
          Passes::backward(op, all, kept, d_from, wanted, threads);
        });
  }
  return detail::run_call(rows, call, text, check, [&](const ExecutorRef& threads) {
    return std::make_unique<LinearBackwardPass<Passes>>(op, inputs, saved, is_saved, d_out, grads,
                                                        rows, threads);
  });
}

// An operator's terms are sums, the delta rule, or, with a near field, both.
#define FOVEA_FAR_FIELD_CALLS(Family, T, kSums, kDelta)         \
  template class LinearCalls<Family##Passes<T, kSums, kDelta>>; \
  template class LinearBackwardCalls<Family##BackwardPasses<T, kSums, kDelta>>;
#define FOVEA_LINEAR_CALLS(Family, T)           \
  FOVEA_FAR_FIELD_CALLS(Family, T, true, false) \
  FOVEA_FAR_FIELD_CALLS(Family, T, false, true)
#define FOVEA_FMM_CALLS(Family, T) \
  FOVEA_LINEAR_CALLS(Family, T)    \
  FOVEA_FAR_FIELD_CALLS(Family, T, true, true)
FOVEA_IN_FLOAT_UNIT(FOVEA_LINEAR_CALLS, Linear)
FOVEA_IN_FLOAT_UNIT(FOVEA_FMM_CALLS, Fmm)
FOVEA_IN_DOUBLE_UNIT(FOVEA_LINEAR_CALLS, Linear)
FOVEA_IN_DOUBLE_UNIT(FOVEA_FMM_CALLS, Fmm)

}  // namespace distributed

FOVEA_NAMESPACE_END
