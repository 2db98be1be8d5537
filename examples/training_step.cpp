// SPDX-License-Identifier: MIT
/// \file
/// Training steps: forward saves lse, backward computes the gradients of q, k and v from that of
/// the output, and gradient descent updates the tensors.
#include <cstdio>
#include <cstdlib>
#include <fovea/fovea.hpp>

using Tensor = Eigen::Tensor<float, 4, Eigen::RowMajor>;  // [B, H, N, D]

int main() {
  const Eigen::array<Eigen::Index, 4> shape = {1, 2, 64, 16};
  Tensor q(shape), k(shape), v(shape), target(shape);
  std::srand(1);  // of Eigen's setRandom
  for (Tensor* x : {&q, &k, &v, &target}) x->setRandom();

  const fovea::FullAttention op{{.causal = true}};
  fovea::ThreadPool pool;
  Tensor out(shape), d_out(shape), d_q(shape), d_k(shape), d_v(shape);
  Eigen::Tensor<float, 3, Eigen::RowMajor> lse(1, 2, 64);

  float first = 0, last = 0;
  for (int step = 0; step < 200; ++step) {
    const fovea::SoftmaxSaved<float> saved{fovea::row_view(lse)};
    op.forward({q, k, v}, out, saved, pool);
    d_out = out - target;  // of the loss |out - target|^2 / 2
    const Eigen::Tensor<float, 0, Eigen::RowMajor> loss = d_out.square().mean();
    op.backward({q, k, v}, out, saved, d_out, {.q = d_q, .k = d_k, .v = d_v}, pool);
    q -= d_q * 0.5f;
    k -= d_k * 0.5f;
    v -= d_v * 0.5f;
    (step == 0 ? first : last) = loss();
  }
  std::printf("loss below a third of the first: %s\n", last < first / 3 ? "yes" : "no");
}
