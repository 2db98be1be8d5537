// SPDX-License-Identifier: MIT
/// \file
/// A user's program: every header, and one known result.
#include <cstdio>
#include <fovea/fovea.hpp>

int main() {
  Eigen::MatrixXf q(2, 1), k(2, 1), v(2, 1);  // [N, D]
  q << 0, 0;
  k << 1, 2;
  v << 3, 5;
  fovea::ThreadPool pool(2);
  const Eigen::MatrixXf out = fovea::attend(fovea::FullAttention{{.causal = true}}, q, k, v, pool);
  std::printf("%g %g\n", double{out(0, 0)}, double{out(1, 0)});
  return out(0, 0) == 3 && out(1, 0) == 4 ? 0 : 1;
}
