// SPDX-License-Identifier: MIT
/// \file
/// FSAT attention as MATHS.md, section 6 writes it (Zhuang et al. 2022, eqs. 7-10), and its
/// gradients: every row looks at every key and slot, in float64 (long double for double inputs).
/// Gauges: those of softmax.hpp, where a confidence weighs 1 + (I - Ibar)^2 / (2 sigma^2) more.
/// Held to central differences by tests/attention/fsat_test.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "fovea/attention/fsat/options.hpp"
#include "support/oracle/softmax_grad.hpp"

namespace fovea_test {

using fovea::EdgeSource;

/// The expected results of a backward pass of FSAT.
template <class T>
struct ExpectedFsatGrads {
  ExpectedGrads<T> softmax;
  Reference<T> dominant;
};

/// An edge of one row.
template <class T>
struct OracleEdge {
  Index key;   // of the sequence
  Index slot;  // m
  bool is_random;
  Wide<T> distance;  // I - Ibar
  Wide<T> confidence;
  Wide<T> size;  // its gauge
};

/// The graph of one head of a sequence.
template <class T>
class OracleGraph {
 public:
  using W = Wide<T>;

  OracleGraph(const bench::AllInputs<T>& in, const fovea::FsatOptions& options,
              const OracleSequence& s, Index h)
      : in_(in), options_(options), s_(s), head_(h), edges_(as_size(s.length)) {
    for (Index j = 0; j < s.length; ++j) {
      for (const bool is_random : {false, true}) {
        for (Index m = 0; m < in.dominant.width(); ++m) {
          const Index to = is_random ? random(j, m) : predicted(j, m);
          if (to >= 0) edges_[as_size(to)].push_back({j, m, is_random});
        }
      }
    }
  }

  W variance() const {
    return options_.variance ? W{*options_.variance} : static_cast<W>(options_.max_length);
  }

  /// The edges of row i, by ascending key: of several from one key that of the largest confidence,
  /// the smallest distance; then the predicted one; then the smaller slot.
  std::vector<OracleEdge<T>> row(Index i) const {
    std::vector<OracleEdge<T>> edges;
    if (i >= s_.length) return edges;
    for (const auto& [j, m, is_random] : edges_[as_size(i)]) {
      const W distance = static_cast<W>(i) - W{dominant(j, m)};
      const W power = distance * distance / (2 * variance());
      const W constant = options_.confidence == fovea::Confidence::relative
                             ? 1
                             : 1 / std::sqrt(2 * kPi * variance());
      const W confidence = constant * std::exp(-power);
      const OracleEdge<T> edge = {j,        m,          is_random,
                                  distance, confidence, confidence * (1 + power) + kFaint<T>};
      if (edges.empty() || edges.back().key != j) {
        edges.push_back(edge);
      } else if (std::abs(distance) < std::abs(edges.back().distance)) {
        edges.back() = edge;
      }
    }
    return edges;
  }

 private:
  /// Where an edge comes from.
  struct Origin {
    Index key;
    Index slot;
    bool is_random;
  };

  static constexpr W kPi = static_cast<W>(3.14159265358979323846264338327950288L);

  T dominant(Index j, Index m) const { return in_.dominant(s_.batch, head_, s_.first_key + j, m); }

  /// Where slot m of key j points: Ip; -1: nowhere.
  Index predicted(Index j, Index m) const {
    if (options_.edges == EdgeSource::random) return -1;
    const W index =
        std::min(std::floor(W{dominant(j, m)}), static_cast<W>(options_.max_length - 1));
    return index < static_cast<W>(s_.length) ? static_cast<Index>(index) : -1;
  }
  /// Ir
  Index random(Index j, Index m) const {
    if (options_.edges == EdgeSource::predicted) return -1;
    const double u = fovea::uniform_draw<double>(options_.seed, s_.index, head_, j, m);
    return static_cast<Index>(u * static_cast<double>(s_.length));
  }

  const bench::AllInputs<T>& in_;
  const fovea::FsatOptions& options_;
  const OracleSequence& s_;
  Index head_;
  std::vector<std::vector<Origin>> edges_;  // of each row, by key, predicted ones first, by slot
};

/// The weights of a row before the confidences, over its edges.
template <class T>
OracleRow<T> oracle_fsat_row(const bench::AllInputs<T>& in, const fovea::FsatOptions& options,
                             const std::vector<OracleEdge<T>>& edges, const OracleSequence& s,
                             Index h, Index i) {
  std::vector<bool> shown(as_size(s.keys));
  for (const OracleEdge<T>& edge : edges) shown[as_size(edge.key)] = true;
  const auto sees = [&](const Pair& p) { return bool{shown[as_size(p.j)]}; };
  return oracle_row(in, OracleOperator<T>::of({.scale = options.scale}, sees, in.q.width()), s, h,
                    i);
}

/// Calls f(row, edges, graph) for every row: its weights before the confidences, and its edges.
template <class T, class F>
void for_each_fsat_row(const bench::AllInputs<T>& in, const fovea::FsatOptions& options, F&& f) {
  for (const OracleSequence& s : oracle_sequences(in)) {
    for (Index h = 0; h < in.q.heads(); ++h) {
      const OracleGraph<T> graph(in, options, s, h);
      for (Index i = 0; i < s.queries; ++i) {
        const std::vector<OracleEdge<T>> edges = graph.row(i);
        f(oracle_fsat_row(in, options, edges, s, h, i), edges, graph);
      }
    }
  }
}

/// out_i = sum_j softmax_j(s_ij) confidence_ij v_j.
template <class T>
OracleOut<T> oracle_fsat_out(const bench::AllInputs<T>& in, OracleRow<T> row,
                             const std::vector<OracleEdge<T>>& edges) {
  for (std::size_t n = 0; n < edges.size(); ++n) {
    row.p[n] *= edges[n].confidence;
    row.size[n] *= edges[n].size;
  }
  return oracle_out(in, row);
}

template <class T>
Expected<T> fsat_oracle(const bench::AllInputs<T>& in, const fovea::FsatOptions& options) {
  const Index width = in.v.width();
  Expected<T> expected{zero_reference<T>({in.q.batch(), in.q.heads(), in.q.rows(), width}),
                       zero_reference<T>({in.q.batch(), in.q.heads(), in.q.rows(), 1})};
  for_each_fsat_row(in, options, [&](const auto& row, const auto& edges, const auto&) {
    put_row(expected, row, oracle_fsat_out(in, row, edges));
  });
  return expected;
}

namespace detail {

/// The gradients that one row gives.
template <class T, class D>
void add_fsat_row(const bench::AllInputs<T>& in, const fovea::FsatOptions& options, Wide<T> scale,
                  const View<D>& d_out, const OracleRow<T>& row,
                  const std::vector<OracleEdge<T>>& edges, const OracleGraph<T>& graph,
                  ExpectedFsatGrads<T>& to) {
  using W = Wide<T>;
  const Index b = row.batch;
  const W condition = 1 + row.largest;
  std::vector<Sum<T>> products;  // <d_out, v>
  Sum<T> delta;                  // <d_out, out>
  for (std::size_t n = 0; n < edges.size(); ++n) {
    Sum<T> sum;
    for (Index c = 0; c < in.v.width(); ++c) {
      sum.add(W{d_out(b, row.head, row.query, c)} * W{in.v(b, row.key_head, row.keys[n], c)});
    }
    products.push_back(sum);
    delta.value += row.p[n] * edges[n].confidence * sum.value;
    delta.magnitude += row.size[n] * edges[n].size * sum.magnitude;
  }
  for (std::size_t n = 0; n < edges.size(); ++n) {
    const auto& [key, slot, is_random, distance, confidence, size] = edges[n];
    const Index j = row.keys[n];
    const W ds = scale * row.p[n] * (confidence * products[n].value - delta.value);
    const W ds_size = std::abs(scale) * row.size[n] *
                      (size * products[n].magnitude + delta.magnitude) * condition;
    for (Index c = 0; c < in.q.width(); ++c) {
      const W k = in.k(b, row.key_head, j, c);
      const W q = in.q(b, row.head, row.query, c);
      add(to.softmax.q, {b, row.head, row.query, c}, ds * k, ds_size * std::abs(k));
      add(to.softmax.k, {b, row.key_head, j, c}, ds * q, ds_size * std::abs(q));
    }
    for (Index c = 0; c < in.v.width(); ++c) {
      const W d = d_out(b, row.head, row.query, c);
      add(to.softmax.v, {b, row.key_head, j, c}, row.p[n] * confidence * d,
          row.size[n] * size * std::abs(d) * condition);
    }
    const W by_confidence = row.p[n] * products[n].value;
    const W flows = options.truncate_gradient ? std::min(W{0}, by_confidence) : by_confidence;
    const W slope = distance / graph.variance();
    add(to.dominant, {b, row.head, j, slot}, flows * confidence * slope,
        row.size[n] * products[n].magnitude * condition * size * std::abs(slope));
  }
}

}  // namespace detail

/// The gradients of sum d_out out. \param d_out [B, Hq, Nq, Dv], of T or wider
template <class T, class D>
ExpectedFsatGrads<T> fsat_grad_oracle(const bench::AllInputs<T>& in,
                                      const fovea::FsatOptions& options, const View<D>& d_out) {
  ExpectedFsatGrads<T> grads{
      {zero_reference<T>(in.q.shape()), zero_reference<T>(in.k.shape()),
       zero_reference<T>(in.v.shape()), zero_reference<T>({}), zero_reference<T>({1, 0, 1, 1})},
      zero_reference<T>(in.dominant.shape())};
  const Wide<T> scale = OracleOperator<T>::of({.scale = options.scale}, {}, in.q.width()).scale;
  for_each_fsat_row(in, options, [&](const auto& row, const auto& edges, const auto& graph) {
    detail::add_fsat_row(in, options, scale, d_out, row, edges, graph, grads);
  });
  for (Reference<T>* x : {&grads.softmax.q, &grads.softmax.k}) detail::drop_noise(*x);
  return grads;
}

}  // namespace fovea_test
