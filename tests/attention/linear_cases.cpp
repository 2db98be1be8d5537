// SPDX-License-Identifier: MIT
/// \file
/// Linear attention in the conformance suite.
#include "attention/linear_case.hpp"

#include "attention/cases.hpp"

namespace fovea_test {

template <class T>
std::vector<Case<T>> linear_cases() {
  using namespace fovea;
  constexpr auto top_left = CausalAlignment::top_left;
  return {
      linear_case<T>("linear", LinearAttention<EluPlusOne>{}),
      linear_case<T>("linear_causal", LinearAttention<EluPlusOne>{{.causal = true}}),
      linear_case<T>("linear_top_left",
                     LinearAttention<EluPlusOne>{{.causal = true, .alignment = top_left}}),
      linear_case<T>(
          "linear_key_length",
          LinearAttention<EluPlusOne>{{.causal = true, .alignment = CausalAlignment::key_length}}),
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
template std::vector<Case<float>> linear_cases();
template std::vector<Case<double>> linear_cases();

}  // namespace fovea_test
