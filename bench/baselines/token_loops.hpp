// SPDX-License-Identifier: MIT
/// \file
/// Causal linear attention and the delta rule token by token, as plain loops: what the chunked
/// kernels are measured against. Nothing of fovea is in them, and they are compiled for speed
/// (-O3 -march=native -ffast-math), which the library itself must not be.
#pragma once

#include <cstddef>

namespace bench {

/// One head. Rows are contiguous: q, k [tokens, width], v, out [tokens, value_width].
struct TokenLoopInput {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  const float* beta = nullptr;  // [tokens], of the delta rule
  std::size_t tokens = 0;
  std::size_t width = 0;
  std::size_t value_width = 0;
};

/// out_i = phi(q_i) S_i / (phi(q_i) . z_i), S_i = sum_{j <= i} phi(k_j) v_j^T,
/// z_i = sum_{j <= i} phi(k_j), phi(x) = elu(x) + 1.
void causal_linear_token_loop(const TokenLoopInput& in, float* out);

/// S_t = S_{t-1} + beta_t k'_t (v_t - S_{t-1}^T k'_t)^T, out_t = S_t^T q'_t, where k' and q' are
/// elu(x) + 1 divided by its sum.
void delta_token_loop(const TokenLoopInput& in, float* out);

}  // namespace bench
