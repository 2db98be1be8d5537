// SPDX-License-Identifier: MIT
/// \file
/// Custom functions of the logits: a learned bias of relative positions, without a tensor of N x N
/// numbers, and a soft cap like the built-in one.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fovea/fovea.hpp>
#include <vector>

using Tensor = Eigen::Tensor<float, 4, Eigen::RowMajor>;  // [B, H, N, D]

/// Adds table[head][distance]; distances beyond the table use its ends.
struct RelativeBias {
  std::vector<std::vector<float>> table;  // [heads][2 reach + 1], from key - query = -reach on

  float value(float logit, fovea::ScorePair pair) const noexcept {
    const auto& of_head = table[static_cast<std::size_t>(pair.head)];
    const auto extent = static_cast<fovea::Index>(of_head.size() / 2);
    const fovea::Index distance = std::clamp(pair.key - pair.query, -extent, extent);
    return logit + of_head[static_cast<std::size_t>(extent + distance)];
  }
  float derivative(float /*logit*/, fovea::ScorePair /*pair*/) const noexcept { return 1; }
};

/// cap tanh(logit / cap)
struct TanhCap {
  float cap;

  float value(float logit, fovea::ScorePair /*pair*/) const noexcept {
    return cap * std::tanh(logit / cap);
  }
  float derivative(float logit, fovea::ScorePair /*pair*/) const noexcept {
    const float t = std::tanh(logit / cap);
    return 1 - t * t;
  }
};

float largest_difference(const Tensor& a, const Tensor& b) {
  const Eigen::Tensor<float, 0, Eigen::RowMajor> most = (a - b).abs().maximum();
  return most();
}

int main() {
  constexpr int n = 300;
  Tensor q(1, 2, n, 16), k(1, 2, n, 16), v(1, 2, n, 16), out(1, 2, n, 16), same(1, 2, n, 16);
  std::srand(1);  // of Eigen's setRandom
  for (Tensor* x : {&q, &k, &v}) x->setRandom();

  // The bias of relative positions, and the same as a tensor of all pairs.
  const RelativeBias relative{{{0.5f, 0.25f, 1, 0, -1}, {-2, 0, 0.125f, 0, 3}}};
  Tensor bias(1, 2, n, n);
  for (int h = 0; h < 2; ++h) {
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) bias(0, h, i, j) = relative.value(0, {0, h, i, j});
    }
  }
  const fovea::FullAttention causal{{.causal = true}};
  fovea::ModifiedAttention(causal, relative).forward({.q = q, .k = k, .v = v}, out);
  causal.forward({.q = q, .k = k, .v = v, .bias = bias}, same);
  std::printf("relative positions: equal to a bias tensor: %s\n",
              largest_difference(out, same) < 1e-5f ? "yes" : "no");

  // Training: the gradients of both caps.
  const fovea::ModifiedAttention own(fovea::FullAttention{}, TanhCap{2});
  const fovea::FullAttention built_in{{.soft_cap = 2}};
  Tensor d_q(1, 2, n, 16), d_k(1, 2, n, 16), d_v(1, 2, n, 16);
  Tensor e_q(1, 2, n, 16), e_k(1, 2, n, 16), e_v(1, 2, n, 16), lse(1, 2, n, 1);
  own.forward({.q = q, .k = k, .v = v}, out, {.lse = lse});
  own.backward({.q = q, .k = k, .v = v}, out, {.lse = lse}, v, {.q = d_q, .k = d_k, .v = d_v});
  built_in.forward({.q = q, .k = k, .v = v}, same, {.lse = lse});
  built_in.backward({.q = q, .k = k, .v = v}, same, {.lse = lse}, v,
                    {.q = e_q, .k = e_k, .v = e_v});
  const float difference = std::max({largest_difference(out, same), largest_difference(d_q, e_q),
                                     largest_difference(d_k, e_k), largest_difference(d_v, e_v)});
  std::printf("tanh cap: equal to the built-in one, also backward: %s\n",
              difference < 1e-4f ? "yes" : "no");
}
