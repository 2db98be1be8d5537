// SPDX-License-Identifier: MIT
/// \file
/// What an operator with a far field computes, in a wider type: its feature maps, and its near
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

namespace bench {

/// A feature map of single numbers, and its derivative.
template <class W>
struct WideMap {
  W (*value)(W);
  W (*derivative)(W);
};

template <class W>
WideMap<W> wide_map(fovea::EluPlusOne /*map*/) {
  return {[](W x) { return x < 0 ? std::exp(x) : x + 1; },
          [](W x) { return x < 0 ? std::exp(x) : W{1}; }};
}
template <class W>
WideMap<W> wide_map(fovea::EluMinusPlusOne /*map*/) {
  return {[](W x) { return x > 0 ? std::exp(-x) : 1 - x; },
          [](W x) { return x > 0 ? -std::exp(-x) : W{-1}; }};
}
template <class W>
WideMap<W> wide_map(fovea::TanhPlusOne /*map*/) {
  return {[](W x) { return 2 / (1 + std::exp(-2 * x)); },
          [](W x) { return 1 / (std::cosh(x) * std::cosh(x)); }};
}

template <class T>
struct FarModel {
  std::vector<WideMap<Wide<T>>> sums;    ///< each with its denominators
  std::vector<WideMap<Wide<T>>> deltas;  ///< by the delta rule
  bool causal = false;
  std::optional<fovea::LocalAttention> near_field = {};
};

namespace detail {

template <class T, class... Terms>
FarModel<T> far_model_of(bool causal) {
  FarModel<T> model;
  model.causal = causal;
  const auto add = [&]<class Term>(fovea::LinearTerm<Term>) {
    auto& terms = fovea::LinearTerm<Term>::kIsDelta ? model.deltas : model.sums;
    terms.push_back(wide_map<Wide<T>>(typename fovea::LinearTerm<Term>::Map{}));
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

/// Tokens that rows see: position t has row t mod Nk of k, v and beta, and the last row of q has
/// the last position.
template <class T>
struct FarTokens {
  const AllInputs<T>& in;
  Index count;

  explicit FarTokens(const AllInputs<T>& inputs) : FarTokens(inputs, inputs.k.rows()) {}
  FarTokens(const AllInputs<T>& inputs, Index tokens) : in(inputs), count(tokens) {}

  Index row(Index t) const { return t % in.k.rows(); }
  Index position(Index query_row) const { return count - in.q.rows() + query_row; }
  Index key_head(Index head) const { return head / (in.q.heads() / in.k.heads()); }
  /// Past the last token that the row at a position sees in the far field.
  Index end(Index position, bool causal) const { return causal ? position + 1 : count; }
};

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

/// The softmax of a row over its band.
template <class T>
struct BandRow {
  Index first = 0;               // position of its first key
  std::vector<Wide<T>> weights;  // of the keys from there
  Wide<T> gauge = 1;             // 1 + B
};

template <class T>
BandRow<T> band_row(const FarTokens<T>& x, const fovea::LocalAttention& near_field, Index head,
                    Index query_row) {
  using W = Wide<T>;
  const Index i = x.position(query_row);
  const Index last = std::min(i + near_field.options.right, x.count - 1);
  const W scale = 1 / std::sqrt(static_cast<W>(x.in.q.width()));
  BandRow<T> row;
  row.first = std::max<Index>(0, i - near_field.options.left);
  W most = -std::numeric_limits<W>::infinity();
  for (Index t = row.first; t <= last; ++t) {
    W dot = 0;
    W size = 0;
    for (Index c = 0; c < x.in.q.width(); ++c) {
      const W term = static_cast<W>(x.in.q(0, head, query_row, c)) *
                     static_cast<W>(x.in.k(0, x.key_head(head), x.row(t), c));
      dot += term;
      size += std::abs(term);
    }
    row.weights.push_back(scale * dot);
    most = std::max(most, row.weights.back());
    row.gauge = std::max(row.gauge, 1 + scale * size);
  }
  W total = 0;
  for (W& weight : row.weights) total += weight = std::exp(weight - most);
  for (W& weight : row.weights) weight /= total;
  return row;
}

/// Features of the rows [0, rows) of a head: [rows, D].
template <class T>
std::vector<Wide<T>> features_of(const WideMap<Wide<T>>& map, const View<const T>& x, Index head) {
  std::vector<Wide<T>> features;
  features.reserve(static_cast<std::size_t>(x.rows() * x.width()));
  for (Index n = 0; n < x.rows(); ++n) {
    for (Index d = 0; d < x.width(); ++d) features.push_back(map.value(x(0, head, n, d)));
  }
  return features;
}

template <class W>
W dot(const W* a, const W* b, Index n) {
  W sum = 0;
  for (Index i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace bench
