// SPDX-License-Identifier: MIT
/// \file
/// The first example of the README: full and local attention of one sequence on all threads.
#include <cstdio>
#include <fovea/fovea.hpp>

int main() {
  Eigen::Tensor<float, 4, Eigen::RowMajor> q(1, 8, 1024, 64);  // [B, H, N, D]
  auto k = q, v = q;
  q.setConstant(1);
  k.setConstant(1);
  for (int h = 0; h < 8; ++h)
    for (int n = 0; n < 1024; ++n)
      for (int d = 0; d < 64; ++d) v(0, h, n, d) = float(n);

  fovea::ThreadPool pool;
  auto causal = fovea::attend(fovea::FullAttention{{.causal = true}}, q, k, v, pool);
  auto local = fovea::attend(fovea::LocalAttention{{.left = 4}}, q, k, v, pool);
  std::printf("row 1000: causal %.1f, local %.1f\n", causal(0, 0, 1000, 0), local(0, 0, 1000, 0));
}
