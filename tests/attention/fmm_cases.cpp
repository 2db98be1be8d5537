// SPDX-License-Identifier: MIT
/// \file
/// FMM attention and the delta rule in the conformance suite.
#include "attention/cases.hpp"
#include "attention/linear_case.hpp"

namespace fovea_test {

template <class T>
std::vector<Case<T>> fmm_cases() {
  using namespace fovea;
  return {
      fmm_case<T>("fmm", FmmAttention<EluPlusOne>{{.band = {.left = 4, .right = 4}}},
                  {.near_logits = "hd", .far_logits = "hd"}),
      fmm_case<T>("fmm_2_normalised",
                  FmmAttention<EluPlusOne, EluMinusPlusOne>{{
                      .band = {.left = 4, .right = 4},
                      .normalise_rows = true,
                  }},
                  {.near_logits = "1", .far_logits = "d"}),
      fmm_case<T>("fmm_3_causal",
                  FmmAttention<EluPlusOne, EluMinusPlusOne, TanhPlusOne>{{
                      .band = {.left = 70},
                      .causal = true,
                      .scale = 0.3,
                  }},
                  {.near_logits = "h", .far_logits = "h"}),
      fmm_case<T>("fmm_top_left", FmmAttention<EluPlusOne>{{
                                      .band = {.left = 9, .right = 3},
                                      .causal = true,
                                      .alignment = CausalAlignment::top_left,
                                  }}),
      fmm_case<T>("fmm_key_length",
                  FmmAttention<EluPlusOne, DeltaRule<EluPlusOne>>{{
                      .band = {.left = 9},
                      .alignment = CausalAlignment::key_length,
                  }},
                  {.beta = true, .near_logits = "h", .far_logits = "h"}),
      fmm_case<T>("fmm_key_length_not_causal", FmmAttention<EluPlusOne>{{
                                                   .band = {.left = 4, .right = 70},
                                                   .alignment = CausalAlignment::key_length,
                                               }}),
      fmm_case<T>("fmm_delta",
                  FmmAttention<EluPlusOne, DeltaRule<EluPlusOne>>{{
                      .band = {.left = 4},
                      .causal = true,
                  }},
                  {.beta = true, .far_logits = "h"}),
      fmm_case<T>("fmm_mean_normalised",
                  FmmAttention<EluPlusOne, EluMinusPlusOne>{{
                      .band = {.left = 4, .right = 4},
                      .normalise_rows = true,
                      .combine = CombineMaps::mean,
                  }},
                  {.near_logits = "h", .far_logits = "d"}),
      fmm_case<T>("fmm_delta_mean",
                  FmmAttention<EluPlusOne, DeltaRule<EluPlusOne>>{{
                      .band = {.left = 4},
                      .combine = CombineMaps::mean,
                  }},
                  {.beta = true, .far_logits = "h"}),
      fmm_case<T>("fmm_joint_causal",
                  FmmAttention<EluPlusOne, EluMinusPlusOne, TanhPlusOne>{{
                      .band = {.left = 9},
                      .causal = true,
                      .normalise_rows = true,
                      .combine = CombineMaps::joint,
                  }},
                  {.near_logits = "1", .far_logits = "h"}),
      delta_case<T>("delta", DeltaRuleAttention<EluPlusOne>{}),
      delta_case<T>("delta_key_length",
                    DeltaRuleAttention<EluPlusOne>{{.alignment = CausalAlignment::key_length}}),
      delta_case<T>("delta_top_left",
                    DeltaRuleAttention<Relu>{{.alignment = CausalAlignment::top_left}}),
  };
}
template std::vector<Case<float>> fmm_cases();
template std::vector<Case<double>> fmm_cases();

}  // namespace fovea_test
