// SPDX-License-Identifier: MIT
/// \file
/// Entries of linear attention and of the delta rule.
#include "bench/entries/operators.hpp"

#include <vector>

#include "bench/entries/families.hpp"
#include "bench/entries/far_entry.hpp"

namespace bench {

namespace {

/// One map, and the three of the paper.
using OneMap = fovea::LinearAttention<fovea::EluPlusOne>;
using ThreeMaps =
    fovea::LinearAttention<fovea::EluPlusOne, fovea::EluMinusPlusOne, fovea::TanhPlusOne>;

}  // namespace

std::vector<Entry> linear_entries() {
  const OneMap one;
  const OneMap one_causal({.causal = true});
  const ThreeMaps three;
  const ThreeMaps three_causal({.causal = true});
  const TokenLoop loop{"token loop", &causal_linear_token_loop};
  const Family of_loop = few_heads(4, {4096, 16384, 65536});
  // clang-format off
  return {
      far_entry({"linear", "maps:1", "linear"}, one, far_families()),
      far_entry({"linear", "causal,maps:1", "linear, causal"}, one_causal, far_families()),
      far_entry({"linear", "causal,maps:1", "linear, training", Pass::training}, one_causal, {}),
      far_decode_entry({"linear", "causal,maps:1", "linear, decoding"}, one_causal, far_decode_families()),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      far_entry({"linear", "maps:1"}, one, {shared_head()}),
      far_entry({"linear", "causal,maps:1,beside:loop"}, one_causal, {of_loop}, loop),
      far_entry({"linear", "maps:3"}, three, few_families()),
      far_entry({"linear", "causal,maps:3"}, three_causal, few_families()),
      far_entry({"linear", "maps:1", "", Pass::backward}, one, far_backward_families()),
      far_entry({"linear", "causal,maps:1", "", Pass::backward}, one_causal, far_backward_families()),
      far_entry({"linear", "causal,maps:3", "", Pass::backward}, three_causal, {{.lengths = {4096, 16384}}}),
#endif
  };
  // clang-format on
}

std::vector<Entry> delta_entries() {
  const fovea::DeltaRuleAttention<> op;
  const TokenLoop loop{"token loop", &delta_token_loop};
  // clang-format off
  return {
      far_entry({"delta", "elu", "delta rule"}, op, far_families()),
      far_entry({"delta", "elu", "delta rule, training", Pass::training}, op, {}),
      far_decode_entry({"delta", "elu", "delta rule, decoding"}, op, far_decode_families()),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      far_entry({"delta", "elu,beside:loop"}, op, {few_heads(4, {4096, 16384, 65536})}, loop),
      far_entry({"delta", "elu", "", Pass::backward}, op, far_backward_families()),
#endif
  };
  // clang-format on
}

}  // namespace bench
