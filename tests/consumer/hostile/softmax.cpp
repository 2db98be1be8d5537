// SPDX-License-Identifier: MIT
/// \file
/// Softmax attention over patterns: each operator forward, backward and as a decoder.
#include <fovea/attention/fixed.hpp>
#include <fovea/attention/full.hpp>
#include <fovea/attention/local.hpp>
#include <fovea/attention/sparse.hpp>
#include <fovea/attention/strided.hpp>
#include <fovea/patterns.hpp>

#include "problem.hpp"

namespace {
namespace softmax_family {

using namespace problem;

template <class Op>
void train_and_decode(const Op& op, fovea::ThreadPool& pool, Digest& digest) {
  const Numbers<float> q(kQ, 1), k(kKey, 2), v(kKey, 3);
  train(op, {q, k, v}, pool, digest);

  auto decoder = op.template decoder<float>(
      {.batch = 2, .query_heads = 4, .key_heads = 2, .width = 24, .value_width = 24});
  const Numbers<float> prompt_q(kPrompt, 5), prompt_k(kKeyPrompt, 6), prompt_v(kKeyPrompt, 7);
  const Numbers<float> token_q(kToken, 8), token_k(kKeyToken, 9), token_v(kKeyToken, 10);
  Numbers<float> prompt_out(kPrompt), token_out(kToken);
  decoder.step({prompt_q, prompt_k, prompt_v}, prompt_out.to(), pool);
  decoder.step({token_q, token_k, token_v}, token_out.to(), pool);
  digest.add(prompt_out, token_out);
}

}  // namespace softmax_family
}  // namespace

hostile::Result HOSTILE_UNIT(softmax)(int level, int threads);
hostile::Result HOSTILE_UNIT(softmax)(int level, int threads) {
  using namespace softmax_family;
  Digest digest(level);
  fovea::ThreadPool pool(threads);
  train_and_decode(fovea::FullAttention{{.causal = true}}, pool, digest);
  train_and_decode(fovea::LocalAttention{{.left = 11}}, pool, digest);
  train_and_decode(fovea::StridedAttention{{.stride = 12}}, pool, digest);
  train_and_decode(fovea::FixedAttention{{.stride = 16, .summary = 3}}, pool, digest);
  train_and_decode(
      fovea::SparseAttention{
          {.patterns = {fovea::unite(fovea::Window{5, 0}, fovea::GlobalTokens::at({0}, true))}}},
      pool, digest);
  return digest.result();
}
