// SPDX-License-Identifier: MIT
/// \file
/// Included by linear_forward.hpp, where it is documented.
#pragma once

#include <memory>
#include <string>

#include "fovea/attention/fmm/passes.hpp"
#include "fovea/distributed/linear/backward_pass.hpp"
#include "fovea/distributed/linear/forward_pass.hpp"
#include "fovea/distributed/linear/performer_backward_pass.hpp"
#include "fovea/distributed/linear/performer_forward_pass.hpp"
#include "fovea/distributed/linear_forward.hpp"
#include "fovea/distributed/messages/whole_call.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Describes the parts of a call that must be equal on all ranks.
template <class Call>
std::string far_field_text(const Call& call) {
  std::string text = call_text(call);
  if constexpr (requires { call.inputs.projection; }) {
    text.append(", ").append(std::to_string(call.inputs.projection.rows())).append(" features");
  }
  return text;
}

/// Describes the gradients that are sums over all ranks: those of the projection, or of the blend
/// logits, one for each head or for each column.
template <class Call>
const char* sums_text(const Call& call) {
  if constexpr (requires { call.inputs.projection; }) {
    return call.grads.projection.empty() ? "" : ", gradient of the projection";
  } else if constexpr (requires { call.op.near_field(); }) {
    if (!wants_logits(call.grads)) return "";
    return call.op.blend(call.inputs).is_same_for_columns() ? ", gradients of logits"
                                                            : ", gradients of logits of columns";
  }
  return "";
}

}  // namespace detail

template <class Passes>
CommStats linear_forward(const FarFieldForwardCall<Passes>& call) {
  using In = typename Passes::Inputs;
  const auto& op = call.op;
  const auto check = [&] {
    detail::check_call(call, [&](const In& own) { Passes::check(op, own, call.out, call.saved); });
  };
  return detail::run_call(
      call, op.far_field.alignment, detail::far_field_text(call), check,
      [&](const auto& all, const auto& to, const auto& kept, const ExecutorRef& threads) {
        Passes::check(op, all, to, kept);
        Passes::forward(op, all, to, kept, threads);
      },
      [&](const ExecutorRef& threads) {
        return std::make_unique<LinearForwardPass<Passes>>(call, threads);
      });
}

template <class Passes>
CommStats linear_backward(const FarFieldBackwardCall<Passes>& given) {
  using In = typename Passes::Inputs;
  const auto& op = given.op;
  const bool is_saved = detail::is_near_saved(given.saved);
  std::string text = detail::far_field_text(given);
  text.append(is_saved ? ", near field saved" : "").append(detail::sums_text(given));
  const auto check = [&] {
    detail::check_call(given, [&](const In& own) {
      Passes::check(op, own, given.out, given.saved, given.d_out, given.grads);
    });
  };
  const typename Passes::Saved saved = is_saved ? given.saved : typename Passes::Saved{};
  const FarFieldBackwardCall<Passes> call{op,          given.inputs, given.out,  saved,
                                          given.d_out, given.grads,  given.rows, given.collective};
  return detail::run_call(
      call, op.far_field.alignment, text, check,
      [&](const auto& all, const auto& from, const auto& kept, const auto& d_from,
          const auto& wanted, const ExecutorRef& threads) {
        Passes::check(op, all, from, kept, d_from, wanted);
        Passes::backward(op, all, kept, d_from, wanted, threads);
      },
      [&](const ExecutorRef& threads) {
        return std::make_unique<LinearBackwardPass<Passes>>(call, threads);
      });
}

// FOVEA_FAR_FIELD_CALLS(Family, T...): both passes of a family of operators, FamilyPasses<T...>.
#define FOVEA_FAR_FIELD_CALLS(Family, ...)                                 \
  template CommStats linear_forward<Family##Passes<__VA_ARGS__>>(          \
      const FarFieldForwardCall<Family##Passes<__VA_ARGS__>>&);            \
  template CommStats linear_backward<Family##BackwardPasses<__VA_ARGS__>>( \
      const FarFieldBackwardCall<Family##BackwardPasses<__VA_ARGS__>>&);
// An operator's terms are sums, the delta rule, or, with a near field, both.
#define FOVEA_LINEAR_CALLS(Family, T)           \
  FOVEA_FAR_FIELD_CALLS(Family, T, true, false) \
  FOVEA_FAR_FIELD_CALLS(Family, T, false, true)
#define FOVEA_FMM_CALLS(Family, T) \
  FOVEA_LINEAR_CALLS(Family, T)    \
  FOVEA_FAR_FIELD_CALLS(Family, T, true, true)
FOVEA_IN_FLOAT_UNIT(FOVEA_LINEAR_CALLS, Linear)
FOVEA_IN_FLOAT_UNIT(FOVEA_FMM_CALLS, Fmm)
FOVEA_IN_FLOAT_UNIT(FOVEA_FAR_FIELD_CALLS, Performer)
FOVEA_IN_DOUBLE_UNIT(FOVEA_LINEAR_CALLS, Linear)
FOVEA_IN_DOUBLE_UNIT(FOVEA_FMM_CALLS, Fmm)
FOVEA_IN_DOUBLE_UNIT(FOVEA_FAR_FIELD_CALLS, Performer)

}  // namespace distributed

FOVEA_NAMESPACE_END
