// SPDX-License-Identifier: MIT
/// \file
/// The layers on the hidden state cross (MATHS.md, section 6) for one sequence, in plain loops over
/// its definition, from weights by name. Steps are separate functions, so that a test can keep one
/// of them fixed.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fovea/core/philox.hpp"
#include "fovea/layers/activation.hpp"
#include "support/index.hpp"

namespace fovea_test {

using DoubleMatrix = fovea::RowMatrix<double>;
using Weights = std::map<std::string, DoubleMatrix>;

inline double logistic(double x) { return 1 / (1 + std::exp(-x)); }

/// x W + b, without b if there is no parameter of that name.
inline DoubleMatrix affine(const DoubleMatrix& x, const Weights& weights, const std::string& name) {
  const DoubleMatrix& w = weights.at(name + ".weight");
  const auto bias = weights.find(name + ".bias");
  DoubleMatrix y(x.rows(), w.cols());
  for (Index n = 0; n < x.rows(); ++n) {
    for (Index j = 0; j < w.cols(); ++j) {
      y(n, j) = bias == weights.end() ? 0 : bias->second(0, j);
      for (Index i = 0; i < w.rows(); ++i) y(n, j) += x(n, i) * w(i, j);
    }
  }
  return y;
}

namespace fsat_layer {

struct Edge {
  Index query;
  Index key;
  Index slot;
  double confidence;
};
using Edges = std::vector<Edge>;

struct Options {
  Index heads = 1;
  Index head_width = 1;
  Index slots_per_key = 0;  ///< M; 0: full attention
  double most = 1;          ///< Lmax, and sigma^2
  bool density = true;
  bool predicted = true;
  bool random = false;
  std::uint64_t seed = 0;
  Index sequence = 0;  ///< its number in the batch
};

/// f1 or f2: with a depth-wise convolution of five taps if there are weights of one.
inline DoubleMatrix map(const DoubleMatrix& x, const Weights& weights, const std::string& name) {
  DoubleMatrix from = x;
  const auto taps = weights.find(name + ".taps");
  if (taps != weights.end()) {
    for (Index n = 0; n < x.rows(); ++n) {
      for (Index c = 0; c < x.cols(); ++c) {
        from(n, c) = 0;
        for (Index t = 0; t < 5; ++t) {
          const Index at = n + t - 2;
          if (at >= 0 && at < x.rows()) from(n, c) += taps->second(t, c) * x(at, c);
        }
      }
    }
  }
  DoubleMatrix y = affine(from, weights, name);
  for (Index i = 0; i < y.size(); ++i) {
    const double z = y.data()[i];
    y.data()[i] = z * std::erfc(-z / std::sqrt(2)) / 2;
  }
  return y;
}

/// Eqs. 1 to 4: C.
inline DoubleMatrix hidden(const DoubleMatrix& x, const Weights& weights) {
  const DoubleMatrix f1 = map(x, weights, "f1");
  const DoubleMatrix f2 = map(x, weights, "f2");
  const Index n = x.rows();
  DoubleMatrix y(n, x.cols());
  for (Index i = 0; i < n; ++i) {
    for (Index c = 0; c < x.cols(); ++c) {
      y(i, c) = 0;
      for (Index a = 0; a < n; ++a) {
        for (Index b = 0; b < n; ++b) {
          if (a + b == 2 * i || a + b == 2 * i + 1) y(i, c) += f1(a, c) * f2(b, c);
        }
      }
      y(i, c) = i + 1 == n ? 0 : y(i, c) - f1(i, c) * f2(i, c);
    }
    const double mean = y.row(i).sum() / static_cast<double>(x.cols());
    double variance = 0;
    for (Index c = 0; c < x.cols(); ++c) variance += std::pow(y(i, c) - mean, 2);
    variance /= static_cast<double>(x.cols());
    for (Index c = 0; c < x.cols(); ++c) {
      y(i, c) =
          (y(i, c) - mean) / std::sqrt(variance + 1e-5) * weights.at("cross_norm.scale")(0, c) +
          weights.at("cross_norm.shift")(0, c);
    }
  }
  return y;
}

/// Eq. 9: Ibar [n, H M].
inline DoubleMatrix dominant(const DoubleMatrix& c, const Weights& weights,
                             const Options& options) {
  DoubleMatrix y = affine(c, weights, "dominant");
  for (Index i = 0; i < y.size(); ++i) y.data()[i] = logistic(y.data()[i]) * options.most;
  return y;
}

/// The edges of a head, each once, with the larger of their confidences.
inline Edges edges(const DoubleMatrix& ibar, Index head, const Options& options) {
  const Index n = ibar.rows();
  std::map<std::pair<Index, Index>, Edge> kept;
  const auto add = [&](Index query, Index key, Index slot) {
    const double distance =
        static_cast<double>(query) - ibar(key, head * options.slots_per_key + slot);
    double confidence = std::exp(-distance * distance / (2 * options.most));
    if (options.density) confidence /= std::sqrt(2 * std::acos(-1) * options.most);
    const auto found = kept.find({query, key});
    if (found != kept.end() && found->second.confidence >= confidence) return;
    kept[{query, key}] = {query, key, slot, confidence};
  };
  for (Index j = 0; j < n; ++j) {
    for (Index m = 0; m < options.slots_per_key; ++m) {
      const double at = ibar(j, head * options.slots_per_key + m);
      const auto query = static_cast<Index>(std::min(std::floor(at), options.most - 1));
      if (options.predicted && query < n) add(query, j, m);
      const double draw = fovea::uniform_draw<double>(options.seed, options.sequence, head, j, m);
      if (options.random) add(static_cast<Index>(draw * static_cast<double>(n)), j, m);
    }
  }
  Edges all;
  for (const auto& [pair, edge] : kept) all.push_back(edge);
  return all;
}

/// Every edge of every head.
inline std::vector<Edges> graph(const DoubleMatrix& ibar, const Options& options) {
  std::vector<Edges> all;
  for (Index h = 0; h < options.heads; ++h) {
    Edges of_head;
    if (options.slots_per_key > 0) {
      of_head = edges(ibar, h, options);
    } else {
      for (Index i = 0; i < ibar.rows(); ++i) {
        for (Index j = 0; j < ibar.rows(); ++j) of_head.push_back({i, j, 0, 1});
      }
    }
    all.push_back(of_head);
  }
  return all;
}

/// Eqs. 6 and 7: y from x, C and the graph.
inline DoubleMatrix output(const DoubleMatrix& x, const DoubleMatrix& c,
                           const std::vector<Edges>& graph, const Weights& weights,
                           const Options& options) {
  const DoubleMatrix q = affine(x, weights, "q");
  const DoubleMatrix kv = affine(c, weights, "kv");
  const Index columns = options.heads * options.head_width;
  DoubleMatrix out = DoubleMatrix::Zero(x.rows(), columns);
  for (Index h = 0; h < options.heads; ++h) {
    const Index first = h * options.head_width;
    for (Index i = 0; i < x.rows(); ++i) {
      double sum = 0;
      std::vector<std::pair<double, Edge>> terms;
      for (const Edge& edge : graph[as_size(h)]) {
        if (edge.query != i) continue;
        double score = 0;
        for (Index d = 0; d < options.head_width; ++d) {
          score += q(i, first + d) * kv(edge.key, first + d);
        }
        terms.push_back(
            {std::exp(score / std::sqrt(static_cast<double>(options.head_width))), edge});
        sum += terms.back().first;
      }
      for (const auto& [weight, edge] : terms) {
        for (Index d = 0; d < options.head_width; ++d) {
          out(i, first + d) += weight / sum * edge.confidence * kv(edge.key, columns + first + d);
        }
      }
    }
  }
  return affine(out, weights, "out");
}

/// All of it.
inline DoubleMatrix layer(const DoubleMatrix& x, const Weights& weights, const Options& options) {
  const DoubleMatrix c = hidden(x, weights);
  const DoubleMatrix ibar = options.slots_per_key > 0 ? dominant(c, weights, options) : c;
  return output(x, c, graph(ibar, options), weights, options);
}

}  // namespace fsat_layer
}  // namespace fovea_test
