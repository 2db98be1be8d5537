// SPDX-License-Identifier: MIT
/// \file
/// Cases of linear attention, FMM attention and the delta rule, with oracles written from MATHS.md
/// section 4.
#pragma once

#include <string>

#include "attention/case.hpp"
#include "attention/reference_masks.hpp"
#include "support/oracle/fmm.hpp"

namespace fovea_test {

/// A feature map of one's own.
struct SquarePlusOne {
  static constexpr const char* name() { return "x^2 + 1"; }
  static constexpr bool kNonNegative = true;
  template <class S>
  static S value(S x) noexcept {
    return x * x + 1;
  }
  template <class S>
  static S derivative(S x) noexcept {
    return 2 * x;
  }
};

template <class T, class Map>
OracleMap<T> oracle_map(Map /*map*/) {
  using W = Wide<T>;
  return {[](W x) { return Map::value(x); }, [](W x) { return Map::derivative(x); }};
}
template <class T>
OracleMap<T> oracle_map(fovea::EluPlusOne /*map*/) {
  return elu_plus_one<T>();
}
template <class T>
OracleMap<T> oracle_map(fovea::EluMinusPlusOne /*map*/) {
  return elu_plus_one<T>(-1);
}
template <class T>
OracleMap<T> oracle_map(fovea::TanhPlusOne /*map*/) {
  return tanh_plus_one<T>();
}
template <class T>
OracleMap<T> oracle_map(fovea::Tanh /*map*/) {
  return tanh_map<T>();
}
template <class T>
OracleMap<T> oracle_map(fovea::Relu /*map*/) {
  return relu<T>();
}

/// The keys that a far field sees: all, or those up to the row's position.
inline ReferenceMask linear_mask(bool causal, fovea::CausalAlignment alignment) {
  if (!causal) return all_pairs;
  return band(kAllKeys, 0, alignment);
}

/// The far field of FMM attention with these terms: feature maps, or DeltaRule of one.
template <class T, class... Terms, class Options>
OracleFmm<T> oracle_far(const Options& options) {
  OracleFmm<T> far_field;
  const auto add = [&]<class Term>(fovea::LinearTerm<Term>) {
    const OracleMap<T> map = oracle_map<T>(typename fovea::LinearTerm<Term>::Map{});
    if constexpr (fovea::LinearTerm<Term>::kIsDelta) {
      far_field.deltas.push_back({map, options.alignment});
    } else {
      far_field.linear.maps.push_back(map);
    }
  };
  (add(fovea::LinearTerm<Terms>{}), ...);
  far_field.linear.is_joint = options.combine == fovea::CombineMaps::joint;
  if (options.combine == fovea::CombineMaps::mean) far_field.share = Wide<T>{1} / sizeof...(Terms);
  far_field.linear.reference_mask = linear_mask(options.causal, options.alignment);
  switch (options.denominator.policy()) {
    case fovea::DenominatorPolicy::zero_row:
      far_field.linear.policy = OraclePolicy::zero_row;
      break;
    case fovea::DenominatorPolicy::signed_floor:
      far_field.linear.policy = OraclePolicy::signed_floor;
      far_field.linear.tau = static_cast<T>(options.denominator.tau());
      break;
    default:
      break;
  }
  return far_field;
}

template <class T>
bool has_signed_weights(const OracleLinear<T>& op) {
  for (const OracleMap<T>& map : op.maps) {
    if (!map.positive) return true;
  }
  return false;
}

template <class T, class... Maps>
Case<T> linear_case(const std::string& name, const fovea::LinearAttention<Maps...>& op) {
  const OracleFmm<T> far_field = oracle_far<T, Maps...>(op.options);
  OracleLinear<T> oracle = far_field.linear;
  oracle.share = far_field.share;
  Case<T> made = make_case<T>(name, op, oracle.reference_mask);
  made.signed_weights = has_signed_weights(oracle);
  made.has_decoder = made.has_decoder && op.options.causal;
  made.oracle = [oracle](const AllInputs<T>& in) {
    return Expected<T>{linear_oracle(in, oracle), {}};
  };
  made.grad_oracle = [oracle](const AllInputs<T>& in, const View<const T>& d_out) {
    return linear_grad_oracle(in, oracle, d_out);
  };
  return made;
}

template <class T, class... Terms>
Case<T> fmm_case(const std::string& name, const fovea::FmmAttention<Terms...>& op,
                 const Extras& extras = {}) {
  const auto& o = op.options;
  OracleFmm<T> oracle = oracle_far<T, Terms...>(o);
  oracle.normalise_rows = o.normalise_rows;
  const Index right = o.causal ? 0 : o.band.right;
  const ReferenceMask near_field = band(o.band.left, right, o.alignment);
  const fovea::SoftmaxOptions options{.scale = o.scale, .alignment = o.alignment};
  const auto at_width = [oracle, options, near_field](Index width) {
    OracleFmm<T> whole = oracle;
    whole.near_field = OracleOperator<T>::of(options, near_field, width);
    return whole;
  };
  Case<T> made = make_case<T>(name, op, oracle.linear.reference_mask);
  made.extras = extras;
  made.signed_weights = has_signed_weights(oracle.linear);
  made.has_band = true;
  made.has_decoder = made.has_decoder && o.causal;
  made.oracle = [at_width](const AllInputs<T>& in) {
    return Expected<T>{fmm_oracle(in, at_width(in.q.width())), {}};
  };
  made.grad_oracle = [at_width](const AllInputs<T>& in, const View<const T>& d_out) {
    return fmm_grad_oracle(in, at_width(in.q.width()), d_out);
  };
  return made;
}

template <class T, class Map>
Case<T> delta_case(const std::string& name, const fovea::DeltaRuleAttention<Map>& op) {
  const OracleDelta<T> oracle{oracle_map<T>(Map{}), op.options.alignment};
  Case<T> made = make_case<T>(name, op, linear_mask(true, op.options.alignment));
  made.extras.beta = true;
  made.oracle = [oracle](const AllInputs<T>& in) {
    return Expected<T>{delta_oracle(in, oracle), {}};
  };
  made.grad_oracle = [oracle](const AllInputs<T>& in, const View<const T>& d_out) {
    return delta_grad_oracle(in, oracle, d_out);
  };
  return made;
}

}  // namespace fovea_test
