// SPDX-License-Identifier: MIT
/// \file
/// Linear attention, FMM attention and the delta rule: forward, backward and decoders.
#include <fovea/attention/delta_rule.hpp>
#include <fovea/attention/fmm.hpp>
#include <fovea/attention/linear.hpp>

#include "problem.hpp"

namespace {
namespace linear_family {

using namespace problem;

template <class Op>
void train_and_decode(const Op& op, fovea::ThreadPool& pool, Digest& digest) {
  const Numbers<float> q(kQ, 1), k(kKey, 2), v(kKey, 3);
  Numbers<float> rates({2, 2, 150, 1}, 11);
  for (float& x : rates.values()) x = x * x;
  const auto inputs_of = [&](const auto& q_in, const auto& k_in, const auto& v_in,
                             const View<const float>& beta_in) {
    typename Op::template Inputs<float> inputs;
    inputs.q = q_in;
    inputs.k = k_in;
    inputs.v = v_in;
    if constexpr (requires { inputs.beta; }) inputs.beta = beta_in;
    return inputs;
  };
  train(op, inputs_of(q, k, v, rates.to()), pool, digest);

  auto decoder = op.template decoder<float>(
      {.batch = 2, .query_heads = 4, .key_heads = 2, .width = 24, .value_width = 24});
  const Numbers<float> prompt_q(kPrompt, 5), prompt_k(kKeyPrompt, 6), prompt_v(kKeyPrompt, 7);
  const Numbers<float> token_q(kToken, 8), token_k(kKeyToken, 9), token_v(kKeyToken, 10);
  Numbers<float> prompt_out(kPrompt), token_out(kToken);
  const View<float> all_rates = rates.to();
  const View<const float> first(all_rates.data(), {2, 2, 9, 1}),
      next(all_rates.data(), {2, 2, 1, 1});
  decoder.step(inputs_of(prompt_q, prompt_k, prompt_v, first), prompt_out.to(), pool);
  decoder.step(inputs_of(token_q, token_k, token_v, next), token_out.to(), pool);
  digest.add(prompt_out, token_out);
}

}  // namespace linear_family
}  // namespace

hostile::Result HOSTILE_UNIT(linear)(int level, int threads);
hostile::Result HOSTILE_UNIT(linear)(int level, int threads) {
  using namespace linear_family;
  Digest digest(level);
  fovea::ThreadPool pool(threads);
  train_and_decode(fovea::LinearAttention<fovea::EluPlusOne>{{.causal = true}}, pool, digest);
  train_and_decode(fovea::FmmAttention<fovea::EluPlusOne, fovea::TanhPlusOne>{{.band = {.left = 7},
                                                                               .causal = true}},
                   pool, digest);
  train_and_decode(fovea::DeltaRuleAttention<>{}, pool, digest);
  return digest.result();
}
