// SPDX-License-Identifier: MIT
/// \file
/// What an operator with a far field computes, for the oracles: its feature maps, and its near
/// field. Only maps that are never negative, so that no denominator is a difference.
#pragma once

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "bench/entries/all_inputs.hpp"
#include "bench/reference/row_reference.hpp"
#include "fovea/attention/delta_rule.hpp"
#include "fovea/attention/fmm.hpp"
#include "fovea/attention/linear.hpp"
#include "fovea/attention/local.hpp"
#include "tests/support/oracle/delta_rule.hpp"
#include "tests/support/oracle/linear.hpp"

namespace bench {

template <class T>
fovea_test::OracleMap<T> oracle_map(fovea::EluPlusOne /*map*/) {
  return fovea_test::elu_plus_one<T>();
}
template <class T>
fovea_test::OracleMap<T> oracle_map(fovea::EluMinusPlusOne /*map*/) {
  return fovea_test::elu_plus_one<T>(-1);
}
template <class T>
fovea_test::OracleMap<T> oracle_map(fovea::TanhPlusOne /*map*/) {
  return fovea_test::tanh_plus_one<T>();
}

template <class T>
struct FarModel {
  std::vector<fovea_test::OracleMap<T>> sums;      ///< each with its denominators
  std::vector<fovea_test::OracleDelta<T>> deltas;  ///< by the delta rule
  bool causal = false;
  std::optional<fovea::LocalAttention> near_field = {};
};

namespace detail {

template <class T, class... Terms>
FarModel<T> far_model_of(bool causal) {
  FarModel<T> model;
  model.causal = causal;
  const auto add = [&]<class Term>(fovea::LinearTerm<Term>) {
    const auto map = oracle_map<T>(typename fovea::LinearTerm<Term>::Map{});
    if constexpr (fovea::LinearTerm<Term>::kIsDelta) model.deltas.push_back({map});
    if constexpr (!fovea::LinearTerm<Term>::kIsDelta) model.sums.push_back(map);
  };
  (add(fovea::LinearTerm<Terms>{}), ...);
  return model;
}

}  // namespace detail

/// \tparam T of the results that are judged
template <class T, class... Maps>
FarModel<T> far_model(const fovea::LinearAttention<Maps...>& op) {
  return detail::far_model_of<T, Maps...>(op.options.causal);
}
template <class T, class Map>
FarModel<T> far_model(const fovea::DeltaRuleAttention<Map>& /*op*/) {
  return detail::far_model_of<T, fovea::DeltaRule<Map>>(true);
}
/// \pre rows are not normalised, and the scale is 1 / sqrt(D).
template <class T, class... Terms>
FarModel<T> far_model(const fovea::FmmAttention<Terms...>& op) {
  FarModel<T> model = detail::far_model_of<T, Terms...>(op.options.causal);
  model.near_field = op.near_field();
  return model;
}

/// One query head and the key head that it reads: a problem for the oracles.
template <class T>
AllInputs<T> one_head(const AllInputs<T>& in, Index head) {
  const auto one = [](const View<const T>& x, Index h) {
    if (x.empty()) return x;
    return View<const T>(&x(0, h, 0, 0), {1, 1, x.rows(), x.width()}, x.strides());
  };
  const Index key_head = head / (in.q.heads() / in.k.heads());
  AllInputs<T> made{one(in.q, head), one(in.k, key_head), one(in.v, key_head)};
  made.beta = one(in.beta, key_head);
  return made;
}

/// The weights of near and far field of a head.
template <class T>
std::pair<Wide<T>, Wide<T>> blend_of(const AllInputs<T>& in, Index head) {
  using W = Wide<T>;
  const auto weight = [&](const View<const T>& logits) {
    if (logits.empty()) return W{1};
    return 1 / (1 + std::exp(-static_cast<W>(logits(0, logits.heads() == 1 ? 0 : head, 0, 0))));
  };
  return {weight(in.near_logits), weight(in.far_logits)};
}

/// Rows of the near field for the oracles.
template <class T>
fovea_test::OracleOperator<T> band_of(const fovea::LocalAttention& near_field, Index width) {
  const auto sees = [band = near_field.options](const fovea_test::Pair& p) {
    return p.j >= p.i() - band.left && p.j <= p.i() + band.right;
  };
  return fovea_test::OracleOperator<T>::of({}, sees, width);
}

}  // namespace bench
