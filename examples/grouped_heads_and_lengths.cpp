// SPDX-License-Identifier: MIT
/// \file
/// Eight query heads that share two key heads, a batch of sequences of different lengths, and the
/// logarithm of each row's sum of exponentials.
#include <cmath>
#include <cstdio>
#include <fovea/fovea.hpp>

int main() {
  using Tensor = fovea::Tensor4<float>;
  Tensor q(2, 8, 50, 32), k(2, 2, 50, 32), v(2, 2, 50, 32);  // [B, Hq, N, D], [B, Hk, N, D]
  q.setZero();                                               // so every visible key weighs the same
  k.setRandom();
  v.setConstant(7);
  const fovea::Index key_lengths[] = {50, 20};  // batch 1 has 20 keys; the rest is padding
  v.chip<0>(1)
      .slice(Eigen::array<long, 3>{0, 20, 0}, Eigen::array<long, 3>{2, 30, 32})
      .setConstant(NAN);  // which no output sees

  Tensor out(2, 8, 50, 32);
  Eigen::Tensor<float, 3, Eigen::RowMajor> lse(2, 8, 50);
  const fovea::FullAttention op;
  op.forward({q, k, v, key_lengths}, out, {fovea::row_view(lse)});

  std::printf("out %.1f %.1f, keys %.0f %.0f\n", out(0, 0, 0, 0), out(1, 7, 49, 31),
              std::exp(lse(0, 0, 0)), std::exp(lse(1, 7, 49)));
}
