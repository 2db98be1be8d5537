// SPDX-License-Identifier: MIT
/// \file
/// A training program by which code sizes are judged: both passes and a decoder, of floats.
#include <fovea/attention/full.hpp>
#include <fovea/core/eigen.hpp>

using Tensor = Eigen::Tensor<float, 4, Eigen::RowMajor>;

void train(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& lse, Tensor& out,
           const Tensor& d_out, Tensor& d_q, Tensor& d_k, Tensor& d_v);
void train(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& lse, Tensor& out,
           const Tensor& d_out, Tensor& d_q, Tensor& d_k, Tensor& d_v) {
  fovea::FullAttention{}.forward({.q = q, .k = k, .v = v}, out, {.lse = lse});
  fovea::FullAttention{}.backward({.q = q, .k = k, .v = v}, out, {.lse = lse}, d_out,
                                  {.q = d_q, .k = d_k, .v = d_v});
}

void decode(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& out);
void decode(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& out) {
  auto decoder = fovea::FullAttention{}.decoder<float>(
      {.batch = 1, .query_heads = 8, .key_heads = 8, .width = 64, .value_width = 64});
  decoder.step({.q = q, .k = k, .v = v}, out);
}
