// SPDX-License-Identifier: MIT
/// \file
/// Decoding: a prompt at once, then token by token with the cached keys and values of the preceding
/// tokens; a draft of four tokens is rolled back.
#include <cstdio>
#include <cstring>
#include <fovea/fovea.hpp>

int main() {
  using Tensor = fovea::Tensor4<float>;
  const fovea::Index heads = 8, key_heads = 2, n = 600, prompt = 500, d = 64;
  Tensor q(1, heads, n, d), k(1, key_heads, n, d), v(1, key_heads, n, d);  // [B, H, N, D]
  q.setRandom();
  k.setRandom();
  v.setRandom();
  // A model's rows for tokens [first, first + count): here, rows of the tensors above.
  const auto tokens = [](const Tensor& x, fovea::Index first, fovea::Index count) -> Tensor {
    return x.slice(Eigen::array<long, 4>{0, 0, first, 0},
                   Eigen::array<long, 4>{1, x.dimension(1), count, x.dimension(3)});
  };

  const fovea::FullAttention op{{.causal = true}};
  fovea::ThreadPool pool;
  auto decoder = op.decoder<float>(
      {.query_heads = heads, .key_heads = key_heads, .width = d, .value_width = d});

  Tensor out(1, heads, prompt, d);
  const Tensor q0 = tokens(q, 0, prompt), k0 = tokens(k, 0, prompt), v0 = tokens(v, 0, prompt);
  decoder.step({q0, k0, v0}, out, pool);

  const Tensor draft_k = tokens(k, 0, 4), draft_v = tokens(v, 0, 4);
  decoder.append(draft_k, draft_v);
  decoder.rollback(prompt);

  const Tensor expected = fovea::attend(op, q, k, v, pool);
  bool same = true;
  Tensor row(1, heads, 1, d);
  for (fovea::Index i = prompt; i < n; ++i) {
    const Tensor qi = tokens(q, i, 1), ki = tokens(k, i, 1), vi = tokens(v, i, 1);
    decoder.step({qi, ki, vi}, row, pool);
    const Tensor expected_row = tokens(expected, i, 1);
    same = same && std::memcmp(row.data(), expected_row.data(), sizeof(float) * heads * d) == 0;
  }
  std::printf("%td tokens, same bits as one call: %s\n", decoder.length(), same ? "yes" : "no");
  return same ? 0 : 1;
}
