// SPDX-License-Identifier: MIT
/// \file
/// What an operator with a far field computes: its feature maps, and its near field. Only maps that
/// are never negative, so that no denominator is a difference.
#pragma once

#include <optional>
#include <vector>

#include "fovea/attention/delta_rule.hpp"
#include "fovea/attention/fmm.hpp"
#include "fovea/attention/linear.hpp"
#include "fovea/attention/local.hpp"

namespace bench {

enum class FarMap { elu_plus_one, elu_minus_plus_one, tanh_plus_one };

constexpr FarMap far_map(fovea::EluPlusOne /*map*/) { return FarMap::elu_plus_one; }
constexpr FarMap far_map(fovea::EluMinusPlusOne /*map*/) { return FarMap::elu_minus_plus_one; }
constexpr FarMap far_map(fovea::TanhPlusOne /*map*/) { return FarMap::tanh_plus_one; }

struct FarModel {
  std::vector<FarMap> sums;    ///< each with its denominators
  std::vector<FarMap> deltas;  ///< by the delta rule
  bool causal = false;
  std::optional<fovea::LocalAttention> near_field = {};
};

namespace detail {

template <class... Terms>
FarModel far_model_of(bool causal) {
  FarModel model;
  model.causal = causal;
  const auto add = [&](FarMap map, bool is_delta) {
    (is_delta ? model.deltas : model.sums).push_back(map);
  };
  (add(far_map(typename fovea::LinearTerm<Terms>::Map{}), fovea::LinearTerm<Terms>::kIsDelta), ...);
  return model;
}

}  // namespace detail

template <class... Maps>
FarModel far_model(const fovea::LinearAttention<Maps...>& op) {
  return detail::far_model_of<Maps...>(op.options.causal);
}
template <class Map>
FarModel far_model(const fovea::DeltaRuleAttention<Map>& /*op*/) {
  return detail::far_model_of<fovea::DeltaRule<Map>>(true);
}
/// \pre rows are not normalised, and the scale is 1 / sqrt(D).
template <class... Terms>
FarModel far_model(const fovea::FmmAttention<Terms...>& op) {
  FarModel model = detail::far_model_of<Terms...>(op.options.causal);
  model.near_field = op.near_field();
  return model;
}

}  // namespace bench
