// SPDX-License-Identifier: MIT
/// \file
/// A multi-head layer done by hand: its weights by name, projections in plain loops, the operator
/// on dense tensors.
#pragma once

#include <cmath>
#include <map>
#include <string>

#include "fovea/attention/attention.hpp"
#include "layers/gradient_check.hpp"

namespace fovea_test {

using DoubleMatrix = fovea::RowMatrix<double>;
using Weights = std::map<std::string, DoubleMatrix>;

inline double logistic(double x) { return 1 / (1 + std::exp(-x)); }

template <class Layer>
Weights weights_of(Layer& layer) {
  Weights all;
  layer.visit([&](auto& p) { all[p.name] = p.value.template cast<double>(); });
  return all;
}

template <class T>
Activations in_double(const Tensor<T>& x) {
  Activations wide(x.shape());
  wide.fill([&](Index b, Index h, Index n, Index d) { return double{x(b, h, n, d)}; });
  return wide;
}

/// Columns [first, first + heads width) of x W + b, as [B, heads, L, width]. \param x [B, 1, L, C]
inline Activations projected(const Activations& x, const Weights& weights, const std::string& name,
                             Index first, Index heads, Index width) {
  const DoubleMatrix& w = weights.at(name + ".weight");
  const auto bias = weights.find(name + ".bias");
  Activations y({x.shape()[0], heads, x.shape()[2], width});
  y.fill([&](Index b, Index h, Index n, Index d) {
    const Index column = first + h * width + d;
    double sum = bias == weights.end() ? 0 : bias->second(0, column);
    for (Index i = 0; i < w.rows(); ++i) sum += x(b, 0, n, i) * w(i, column);
    return sum;
  });
  return y;
}

struct ProjectedHeads {
  Activations q, k, v;
};
/// Queries, keys and values, whose weights are side by side.
inline ProjectedHeads heads_of(const Activations& x, const Weights& weights,
                               const std::string& name, Index heads, Index key_heads, Index width) {
  const auto part = [&](Index first, Index count) {
    return projected(x, weights, name, first * width, count, width);
  };
  return {part(0, heads), part(heads, key_heads), part(heads + key_heads, key_heads)};
}

/// Heads side by side: [B, H, L, D] as [B, 1, L, H D].
inline Activations side_by_side(const Activations& x) {
  const Shape& shape = x.shape();
  Activations y({shape[0], 1, shape[2], shape[1] * shape[3]});
  y.fill([&](Index b, Index, Index n, Index c) { return x(b, c / shape[3], n, c % shape[3]); });
  return y;
}

}  // namespace fovea_test
