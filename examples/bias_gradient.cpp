// SPDX-License-Identifier: MIT
/// \file
/// A learned bias of the logits, one per head and pair, and its gradient: backward sums over the
/// dimensions along which the bias was broadcast.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fovea/fovea.hpp>

using Tensor = Eigen::Tensor<double, 4, Eigen::RowMajor>;  // [B, H, N, D]

int main() {
  Tensor q(3, 2, 40, 8), k(3, 2, 40, 8), v(3, 2, 40, 8), weight(3, 2, 40, 8);
  Tensor bias(1, 2, 40, 40);  // the same for the three sequences of the batch
  std::srand(1);              // of Eigen's setRandom
  for (Tensor* x : {&q, &k, &v, &weight, &bias}) x->setRandom();

  const fovea::FullAttention op;
  Tensor out(3, 2, 40, 8), d_bias(1, 2, 40, 40);
  Eigen::Tensor<double, 3, Eigen::RowMajor> lse(3, 2, 40);
  const fovea::SoftmaxSaved<double> saved{fovea::row_view(lse)};
  const auto loss = [&] {
    op.forward({.q = q, .k = k, .v = v, .bias = bias}, out, saved);
    const Eigen::Tensor<double, 0, Eigen::RowMajor> sum = (out * weight).sum();
    return sum();
  };

  loss();
  op.backward({.q = q, .k = k, .v = v, .bias = bias}, out, saved, weight, {.bias = d_bias});
  const double computed = d_bias(0, 1, 30, 7);
  const double step = 1e-5;
  bias(0, 1, 30, 7) += step;
  const double above = loss();
  bias(0, 1, 30, 7) -= 2 * step;
  const double slope = (above - loss()) / (2 * step);
  std::printf("agrees with the difference quotient: %s\n",
              std::abs(computed - slope) < 1e-8 ? "yes" : "no");
}
