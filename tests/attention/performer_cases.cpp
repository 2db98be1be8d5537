// SPDX-License-Identifier: MIT
/// \file
/// Performer attention in the conformance suite, with kBeyond random features.
#include "attention/performer_case.hpp"

#include "attention/cases.hpp"

namespace fovea_test {

template <class T>
std::vector<Case<T>> performer_cases() {
  return {
      performer_case<T>("performer", {}),
      performer_case<T>("performer_causal", {.causal = true}),
      performer_case<T>("performer_key_length",
                        {.causal = true, .alignment = fovea::CausalAlignment::key_length}),
      performer_case<T>("performer_top_left",
                        {.causal = true, .alignment = fovea::CausalAlignment::top_left}),
  };
}
template std::vector<Case<float>> performer_cases();
template std::vector<Case<double>> performer_cases();

}  // namespace fovea_test
