// SPDX-License-Identifier: MIT
/// \file
/// See token_loops.hpp. Loops run along rows, so that the compiler can vectorise all of them.
#include "token_loops.hpp"

#include <cmath>
#include <vector>

namespace bench {
namespace {

/// y = elu(x) + 1; returns its sum.
float features(const float* x, std::size_t n, float* y) {
  float sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    y[i] = x[i] < 0 ? std::exp(x[i]) : x[i] + 1;
    sum += y[i];
  }
  return sum;
}

void scale(float factor, std::size_t n, float* y) {
  for (std::size_t i = 0; i < n; ++i) y[i] *= factor;
}

}  // namespace

void causal_linear_token_loop(const TokenLoopInput& in, float* out) {
  std::vector<float> state(in.width * in.value_width);
  std::vector<float> normaliser(in.width);
  std::vector<float> q(in.width);
  std::vector<float> k(in.width);
  for (std::size_t t = 0; t < in.tokens; ++t) {
    features(in.q + t * in.width, in.width, q.data());
    features(in.k + t * in.width, in.width, k.data());
    const float* const __restrict v = in.v + t * in.value_width;
    float* const __restrict out_t = out + t * in.value_width;
    for (std::size_t c = 0; c < in.value_width; ++c) out_t[c] = 0;
    float denominator = 0;
    for (std::size_t d = 0; d < in.width; ++d) {
      normaliser[d] += k[d];
      denominator += q[d] * normaliser[d];
      float* const __restrict row = state.data() + d * in.value_width;
      for (std::size_t c = 0; c < in.value_width; ++c) {
        row[c] += k[d] * v[c];
        out_t[c] += q[d] * row[c];
      }
    }
    scale(1 / denominator, in.value_width, out_t);
  }
}

void delta_token_loop(const TokenLoopInput& in, float* out) {
  std::vector<float> state(in.width * in.value_width);
  std::vector<float> q(in.width);
  std::vector<float> k(in.width);
  std::vector<float> error_memory(in.value_width);
  float* const __restrict error = error_memory.data();
  for (std::size_t t = 0; t < in.tokens; ++t) {
    scale(1 / features(in.q + t * in.width, in.width, q.data()), in.width, q.data());
    scale(1 / features(in.k + t * in.width, in.width, k.data()), in.width, k.data());
    const float* const __restrict v = in.v + t * in.value_width;
    float* const __restrict out_t = out + t * in.value_width;
    for (std::size_t c = 0; c < in.value_width; ++c) error[c] = v[c];
    for (std::size_t d = 0; d < in.width; ++d) {
      const float* const __restrict row = state.data() + d * in.value_width;
      for (std::size_t c = 0; c < in.value_width; ++c) error[c] -= k[d] * row[c];
    }
    scale(in.beta[t], in.value_width, error);
    for (std::size_t c = 0; c < in.value_width; ++c) out_t[c] = 0;
    for (std::size_t d = 0; d < in.width; ++d) {
      float* const __restrict row = state.data() + d * in.value_width;
      for (std::size_t c = 0; c < in.value_width; ++c) {
        row[c] += k[d] * error[c];
        out_t[c] += q[d] * row[c];
      }
    }
  }
}

}  // namespace bench
