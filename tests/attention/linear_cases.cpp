// SPDX-License-Identifier: MIT
/// \file
/// Linear attention, FMM attention and the delta rule in the conformance suite.
#include "attention/linear_case.hpp"

#include "attention/cases.hpp"

namespace fovea_test {
namespace {

template <class T>
std::vector<Case<T>> linear_cases() {
  using namespace fovea;
  constexpr auto top_left = CausalAlignment::top_left;
  return {
      linear_case<T>("linear", LinearAttention<EluPlusOne>{}),
      linear_case<T>("linear_causal", LinearAttention<EluPlusOne>{{.causal = true}}),
      linear_case<T>("linear_top_left",
                     LinearAttention<EluPlusOne>{{.causal = true, .alignment = top_left}}),
      linear_case<T>("linear_2_maps", LinearAttention<EluPlusOne, EluMinusPlusOne>{}),
      linear_case<T>("linear_3_maps_causal",
                     LinearAttention<EluPlusOne, EluMinusPlusOne, TanhPlusOne>{{.causal = true}}),
      linear_case<T>("linear_relu_causal", LinearAttention<Relu>{{
                                               .causal = true,
                                               .denominator = Denominator::zero_row(),
                                           }}),
      linear_case<T>("linear_tanh",
                     LinearAttention<Tanh>{{.denominator = Denominator::propagate()}}),
      linear_case<T>("linear_tanh_causal", LinearAttention<Tanh>{{
                                               .causal = true,
                                               .denominator = Denominator::signed_floor(0.05),
                                           }}),
      linear_case<T>("linear_own_and_tanh_causal", LinearAttention<SquarePlusOne, Tanh>{{
                                                       .causal = true,
                                                       .denominator = Denominator::zero_row(),
                                                   }}),
      linear_case<T>("linear_mean", LinearAttention<EluPlusOne, TanhPlusOne>{{
                                        .combine = CombineMaps::mean,
                                    }}),
      linear_case<T>("linear_mean_causal",
                     LinearAttention<EluPlusOne, EluMinusPlusOne, TanhPlusOne>{{
                         .causal = true,
                         .combine = CombineMaps::mean,
                     }}),
      linear_case<T>("linear_joint", LinearAttention<EluPlusOne, EluMinusPlusOne, TanhPlusOne>{{
                                         .combine = CombineMaps::joint,
                                     }}),
      linear_case<T>("linear_joint_causal", LinearAttention<EluPlusOne, EluMinusPlusOne>{{
                                                .causal = true,
                                                .combine = CombineMaps::joint,
                                            }}),
      linear_case<T>("linear_joint_signed_causal",
                     LinearAttention<SquarePlusOne, Tanh>{{
                         .causal = true,
                         .denominator = Denominator::signed_floor(0.05),
                         .combine = CombineMaps::joint,
                     }}),
  };
}

template <class T>
std::vector<Case<T>> fmm_cases() {
  using namespace fovea;
  return {
      fmm_case<T>("fmm", FmmAttention<EluPlusOne>{{.near = {.left = 4, .right = 4}}},
                  {.near_logits = "hd", .far_logits = "hd"}),
      fmm_case<T>("fmm_2_normalised",
                  FmmAttention<EluPlusOne, EluMinusPlusOne>{{
                      .near = {.left = 4, .right = 4},
                      .normalise_rows = true,
                  }},
                  {.near_logits = "1", .far_logits = "d"}),
      fmm_case<T>("fmm_3_causal",
                  FmmAttention<EluPlusOne, EluMinusPlusOne, TanhPlusOne>{{
                      .near = {.left = 70},
                      .causal = true,
                      .scale = 0.3,
                  }},
                  {.near_logits = "h", .far_logits = "h"}),
      fmm_case<T>("fmm_top_left", FmmAttention<EluPlusOne>{{
                                      .near = {.left = 9, .right = 3},
                                      .causal = true,
                                      .alignment = CausalAlignment::top_left,
                                  }}),
      fmm_case<T>("fmm_delta",
                  FmmAttention<EluPlusOne, DeltaRule<EluPlusOne>>{{
                      .near = {.left = 4},
                      .causal = true,
                  }},
                  {.beta = true, .far_logits = "h"}),
      fmm_case<T>("fmm_mean_normalised",
                  FmmAttention<EluPlusOne, EluMinusPlusOne>{{
                      .near = {.left = 4, .right = 4},
                      .normalise_rows = true,
                      .combine = CombineMaps::mean,
                  }},
                  {.near_logits = "h", .far_logits = "d"}),
      fmm_case<T>("fmm_delta_mean",
                  FmmAttention<EluPlusOne, DeltaRule<EluPlusOne>>{{
                      .near = {.left = 4},
                      .combine = CombineMaps::mean,
                  }},
                  {.beta = true, .far_logits = "h"}),
      fmm_case<T>("fmm_joint_causal",
                  FmmAttention<EluPlusOne, EluMinusPlusOne, TanhPlusOne>{{
                      .near = {.left = 9},
                      .causal = true,
                      .normalise_rows = true,
                      .combine = CombineMaps::joint,
                  }},
                  {.near_logits = "1", .far_logits = "h"}),
  };
}

template <class T>
std::vector<Case<T>> delta_cases() {
  using namespace fovea;
  return {
      delta_case<T>("delta", DeltaRuleAttention<EluPlusOne>{}),
      delta_case<T>("delta_top_left",
                    DeltaRuleAttention<Relu>{{.alignment = CausalAlignment::top_left}}),
  };
}

}  // namespace

template <class T>
std::vector<Case<T>> far_cases() {
  return joined<T>({linear_cases<T>(), fmm_cases<T>(), delta_cases<T>()});
}
template std::vector<Case<float>> far_cases();
template std::vector<Case<double>> far_cases();

}  // namespace fovea_test
