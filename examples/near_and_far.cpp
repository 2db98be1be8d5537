// SPDX-License-Identifier: MIT
/// \file
/// FMM attention: a band and two feature maps, blended by weights of each head. Gradient descent
/// learns the weights until the output is that of the band alone.
#include <cstdio>
#include <fovea/fovea.hpp>

int main() {
  using Tensor = fovea::Tensor4<float>;
  const fovea::Index heads = 2, n = 300, d = 16;
  Tensor q(1, heads, n, d), k(1, heads, n, d), v(1, heads, n, d);  // [B, H, N, D]
  q.setRandom();
  k.setRandom();
  v.setRandom();
  Tensor near_logits(1, heads, 1, 1), far_logits(1, heads, 1, 1);  // one weight for each head
  near_logits.setZero();
  far_logits.setZero();
  fovea::ThreadPool pool;
  Tensor out(1, heads, n, d);

  const fovea::FmmAttention<fovea::EluPlusOne, fovea::TanhPlusOne> op{
      {.band = {.left = 4, .right = 4}, .causal = true}};
  fovea::FmmInputs<float> inputs{q, k, v};
  inputs.near_logits = near_logits;
  inputs.far_logits = far_logits;
  op.forward(inputs, out, pool);

  const Tensor target = fovea::attend(fovea::LocalAttention{{.left = 4}}, q, k, v, pool);
  Tensor d_near(1, heads, 1, 1), d_far(1, heads, 1, 1);
  fovea::FmmGrads<float> grads;
  grads.near_logits = d_near;
  grads.far_logits = d_far;
  float first = 0, last = 0;
  for (int step = 0; step < 100; ++step) {
    op.forward(inputs, out, pool);
    const Tensor d_out = (out - target) * 0.01f;  // of the loss |out - target|^2 / 200
    const Eigen::Tensor<float, 0, Eigen::RowMajor> loss = (out - target).square().sum();
    last = loss();
    if (step == 0) first = last;
    op.backward(inputs, out, {}, d_out, grads, pool);
    near_logits -= d_near;
    far_logits -= d_far;
  }
  std::printf("loss %.2f, after 100 steps %.2f\n", static_cast<double>(first),
              static_cast<double>(last));
  for (fovea::Index h = 0; h < heads; ++h) {
    std::printf("head %td: logit of the band %.2f, of the feature maps %.2f\n", h,
                static_cast<double>(near_logits(0, h, 0, 0)),
                static_cast<double>(far_logits(0, h, 0, 0)));
  }
  const bool learnt = last < first / 3 && near_logits(0, 0, 0, 0) > far_logits(0, 0, 0, 0);
  std::printf("loss below a third of the first: %s\n", learnt ? "yes" : "no");
  return learnt ? 0 : 1;
}
