// SPDX-License-Identifier: MIT
/// \file
/// Performer attention in the conformance suite, with kBeyond random features.
#include "attention/cases.hpp"
#include "attention/linear_case.hpp"
#include "support/oracle/performer.hpp"

namespace fovea_test {
namespace {

template <class T>
Case<T> performer_case(std::string name, const fovea::PerformerOptions& options) {
  const Law law = far_law(options.causal, options.alignment);
  Case<T> made = make_case<T>(std::move(name), fovea::PerformerAttention(options), law);
  made.extras.projection = true;
  made.has_decoder = made.has_decoder && options.causal;
  made.oracle = [law](const AllInputs<T>& in) {
    return Expected<T>{performer_oracle(in, law), {}};
  };
  made.grad_oracle = [law](const AllInputs<T>& in, const View<const T>& d_out) {
    return performer_grad_oracle(in, law, d_out);
  };
  return made;
}

}  // namespace

template <class T>
std::vector<Case<T>> performer_cases() {
  return {
      performer_case<T>("performer", {}),
      performer_case<T>("performer_causal", {.causal = true}),
      performer_case<T>("performer_top_left",
                        {.causal = true, .alignment = fovea::CausalAlignment::top_left}),
  };
}
template std::vector<Case<float>> performer_cases();
template std::vector<Case<double>> performer_cases();

}  // namespace fovea_test
