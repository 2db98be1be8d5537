// SPDX-License-Identifier: MIT
/// \file
/// A custom feature map in linear attention, forward and backward.
#include <cmath>
#include <cstdio>
#include <fovea/fovea.hpp>

/// softplus(x) = log(1 + e^x): smooth and never negative, so denominators need no policy.
struct Softplus {
  static constexpr const char* name() { return "log(1 + e^x)"; }
  static constexpr bool kNonNegative = true;

  template <class T>
  static T value(T x) noexcept {
    return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
  }
  template <class T>
  static T derivative(T x) noexcept {
    return 1 / (1 + std::exp(-x));
  }
};

int main() {
  constexpr fovea::Index n = 300, width = 16;
  fovea::Tensor4<double> q(1, 1, n, width), k(1, 1, n, width), v(1, 1, n, width);
  q.setRandom();
  k.setRandom();
  v.setRandom();

  const fovea::LinearAttention<Softplus> op{{.causal = true}};
  const auto out = fovea::attend(op, q, k, v);

  // The definition, in quadratic time: weights phi(q_i) phi(k_j).
  const auto weight = [&](fovea::Index i, fovea::Index j) {
    double sum = 0;
    for (fovea::Index c = 0; c < width; ++c) {
      sum += Softplus::value(q(0, 0, i, c)) * Softplus::value(k(0, 0, j, c));
    }
    return sum;
  };
  double worst = 0;
  for (fovea::Index i = 0; i < n; ++i) {
    double all = 0, first = 0;
    for (fovea::Index j = 0; j <= i; ++j) {
      all += weight(i, j);
      first += weight(i, j) * v(0, 0, j, 0);
    }
    worst = std::max(worst, std::abs(out(0, 0, i, 0) - first / all));
  }

  // The gradient of the sum of all outputs by one key, and its difference quotient.
  fovea::Tensor4<double> d_out(1, 1, n, width), d_k(1, 1, n, width);
  d_out.setConstant(1);
  op.backward({q, k, v}, out, {}, d_out, {.k = d_k});
  const auto sum_at = [&](double step) {
    fovea::Tensor4<double> moved = k;
    moved(0, 0, 7, 3) += step;
    const Eigen::Tensor<double, 0, Eigen::RowMajor> sum = fovea::attend(op, q, moved, v).sum();
    return sum();
  };
  const double quotient = (sum_at(1e-4) - sum_at(-1e-4)) / 2e-4;

  const bool agrees = worst < 1e-12 && std::abs(quotient - d_k(0, 0, 7, 3)) < 1e-6;
  std::printf("%s agrees with its definition, forward and backward: %s\n", Softplus::name(),
              agrees ? "yes" : "no");
  return agrees ? 0 : 1;
}
