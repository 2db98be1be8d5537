// SPDX-License-Identifier: MIT
/// \file
/// The layers on the hidden state cross (MATHS.md, section 6) by hand, in plain loops over their
/// definition: what they compute before their operator, and around it.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "bench/entries/all_inputs.hpp"
#include "layers/by_hand.hpp"

namespace fovea_test {

/// f1 or f2: with a depth-wise convolution of five taps if there are weights of one.
inline Activations hidden_map(const Activations& x, const std::vector<Index>& lengths,
                              const Weights& weights, const std::string& name) {
  const Activations from = x.in({});
  const auto taps = weights.find(name + ".taps");
  if (taps != weights.end()) {
    from.fill([&](Index b, Index, Index n, Index c) {
      double sum = 0;
      for (Index t = 0; t < 5; ++t) {
        const Index at = n + t - 2;
        if (at >= 0 && at < lengths[as_size(b)]) sum += taps->second(t, c) * x(b, 0, at, c);
      }
      return sum;
    });
  }
  const Activations z = projected(from, weights, name, 0, 1, weights.at(name + ".weight").cols());
  Activations y(z.shape());
  y.fill([&](Index b, Index, Index n, Index c) {
    return z(b, 0, n, c) * std::erfc(-z(b, 0, n, c) / std::sqrt(2)) / 2;
  });
  return y;
}

/// Eqs. 1 to 4: C, 0 beyond a sequence.
inline Activations hidden_cross(const Activations& x, const std::vector<Index>& lengths,
                                const Weights& weights) {
  const Activations f1 = hidden_map(x, lengths, weights, "f1");
  const Activations f2 = hidden_map(x, lengths, weights, "f2");
  Activations cross(x.shape());
  cross.fill([&](Index b, Index, Index i, Index c) {
    const Index n = lengths[as_size(b)];
    if (i + 1 >= n) return 0.0;
    double sum = -f1(b, 0, i, c) * f2(b, 0, i, c);
    for (Index a = 0; a < n; ++a) {
      for (const Index other : {2 * i - a, 2 * i + 1 - a}) {
        if (0 <= other && other < n) sum += f1(b, 0, a, c) * f2(b, 0, other, c);
      }
    }
    return sum;
  });
  const Index width = x.shape()[3];
  const DoubleMatrix &scale = weights.at("cross_norm.scale"),
                     &shift = weights.at("cross_norm.shift");
  Activations y(x.shape());
  y.fill([&](Index b, Index, Index i, Index c) {
    if (i >= lengths[as_size(b)]) return 0.0;
    double mean = 0, variance = 0;
    for (Index d = 0; d < width; ++d) mean += cross(b, 0, i, d) / static_cast<double>(width);
    for (Index d = 0; d < width; ++d) {
      variance += std::pow(cross(b, 0, i, d) - mean, 2) / static_cast<double>(width);
    }
    return (cross(b, 0, i, c) - mean) / std::sqrt(variance + 1e-5) * scale(0, c) + shift(0, c);
  });
  return y;
}

/// Eq. 9: the dominant indices [B, H, L, M]. \param most Lmax
inline Activations dominant_by_hand(const Activations& c, const Weights& weights, Index heads,
                                    Index slots, double most) {
  Activations y = projected(c, weights, "dominant", 0, heads, slots);
  y.fill([&](Index b, Index h, Index n, Index m) { return logistic(y(b, h, n, m)) * most; });
  return y;
}

/// Eqs. 6 and 7: the result of a layer around an operator. \param dominant may be empty
template <class Op>
std::vector<double> hidden_cross_layer_by_hand(const Op& op, const Activations& x,
                                               const Activations& c, const Activations& dominant,
                                               const std::vector<Index>& lengths,
                                               const Weights& weights, Index heads, Index width) {
  const Activations q = projected(x, weights, "q", 0, heads, width);
  const Activations k = projected(c, weights, "kv", 0, heads, width);
  const Activations v = projected(c, weights, "kv", heads * width, heads, width);
  bench::AllInputs<double> in{q.view(), k.view(), v.view(), lengths};
  if (dominant.view().size() > 0) in.dominant = dominant.view();
  const Activations out(q.shape());
  op.forward(in, out.view());
  return projected(side_by_side(out), weights, "out", 0, 1, x.shape()[3]).values();
}

}  // namespace fovea_test
