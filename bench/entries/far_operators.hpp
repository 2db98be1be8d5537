// SPDX-License-Identifier: MIT
/// \file
/// The entries of the operators with a far field, one function for each, and the ratios that they
/// are judged by.
#pragma once

#include <vector>

#include "bench/entries/far_entry.hpp"
#include "bench/measure/ratios.hpp"
#include "fovea/attention/full.hpp"

namespace bench {

/// One map, and the three of the paper.
using OneMap = fovea::LinearAttention<fovea::EluPlusOne>;
using ThreeMaps =
    fovea::LinearAttention<fovea::EluPlusOne, fovea::EluMinusPlusOne, fovea::TanhPlusOne>;

namespace detail {

inline Family far_heads(Index heads, std::vector<Index> lengths, int threads = 1) {
  return {.threads = threads, .lengths = std::move(lengths), .heads = heads, .key_heads = heads};
}

inline std::vector<Family> far_families() {
  return {{.lengths = {512, 4096, 16384}},
          far_heads(2, {4096, 65536}),
          far_heads(1, {16384}),
          {.width = 128, .lengths = {4096}},
          {.scalar = Scalar::f64, .lengths = {4096}},
          {.threads = 2, .lengths = {16384}}};
}

/// One head, whose tokens several threads can share if the operator is not causal.
inline Family shared_head() { return far_heads(1, {16384}, 2); }

/// Of further choices of an operator's options.
inline std::vector<Family> few_far_families() {
  return {{.lengths = {4096, 16384}}, far_heads(2, {4096, 65536})};
}

inline std::vector<Family> far_backward_families() {
  return {{.lengths = {4096, 16384}},
          far_heads(2, {65536}),
          {.scalar = Scalar::f64, .lengths = {4096}},
          {.threads = 2, .lengths = {16384}}};
}

inline std::vector<Family> far_decode_families() {
  return {{.lengths = {4096, 32768}}, far_heads(1, {32768}), {.threads = 2, .lengths = {32768}}};
}

}  // namespace detail

inline std::vector<Entry> linear_entries() {
  const OneMap one;
  const OneMap one_causal({.causal = true});
  const ThreeMaps three;
  const ThreeMaps three_causal({.causal = true});
  const TokenLoop loop{"token loop", &causal_linear_token_loop};
  const Family of_loop = detail::far_heads(4, {4096, 16384, 65536});
  // clang-format off
  return {
      far_entry({"linear", "maps:1", "linear"}, one, detail::far_families()),
      far_entry({"linear", "maps:1"}, one, {detail::shared_head()}),
      far_entry({"linear", "causal,maps:1", "linear, causal"}, one_causal, detail::far_families()),
      far_entry({"linear", "causal,maps:1,beside:loop"}, one_causal, {of_loop}, loop),
      far_entry({"linear", "maps:3"}, three, detail::few_far_families()),
      far_entry({"linear", "causal,maps:3"}, three_causal, detail::few_far_families()),
      far_training_entry({"linear", "maps:1", "", Pass::backward}, one, detail::far_backward_families()),
      far_training_entry({"linear", "causal,maps:1", "", Pass::backward}, one_causal, detail::far_backward_families()),
      far_training_entry({"linear", "causal,maps:3", "", Pass::backward}, three_causal, {{.lengths = {4096, 16384}}}),
      far_decode_entry({"linear", "causal,maps:1"}, one_causal, detail::far_decode_families()),
  };
  // clang-format on
}

/// FMM attention with one map and with three, Band5 of the paper.
inline std::vector<Entry> fmm_entries() {
  using fovea::FmmOneKernel;
  using fovea::FmmThreeKernels;
  using fovea::kBand5;
  const FmmOneKernel one_causal({.near = kBand5, .causal = true});
  const FmmThreeKernels three({.near = kBand5});
  const FmmThreeKernels three_causal({.near = kBand5, .causal = true});
  const ForwardPasses<fovea::LocalAttention, ThreeMaps> parts{
      "its parts", {fovea::LocalAttention({4, 4}), ThreeMaps{}}};
  const ForwardPasses<fovea::LocalAttention, ThreeMaps> causal_parts{
      "its parts", {fovea::LocalAttention({4, 0}), ThreeMaps({.causal = true})}};
  const ForwardPasses<fovea::FullAttention> full{"full", {fovea::FullAttention{}}};
  const ForwardPasses<fovea::FullAttention> full_causal{"full, causal",
                                                        {fovea::FullAttention({.causal = true})}};
  const std::vector<Family> of_full = {{.lengths = {4096}}};
  // clang-format off
  return {
      far_entry({"fmm", "maps:3,band:4"}, three, detail::far_families(), parts),
      far_entry({"fmm", "maps:3,band:4"}, three, {detail::shared_head()}),
      far_entry({"fmm", "causal,maps:3,band:4", "FMM 3 maps, causal"}, three_causal, detail::far_families(), causal_parts),
      far_entry({"fmm", "causal,maps:1,band:4"}, one_causal, detail::few_far_families()),
      far_entry({"fmm", "maps:3,band:4,beside:full"}, three, of_full, full),
      far_entry({"fmm", "causal,maps:3,band:4,beside:full"}, three_causal, of_full, full_causal),
      far_training_entry({"fmm", "maps:3,band:4", "", Pass::backward}, three, detail::far_backward_families()),
      far_training_entry({"fmm", "causal,maps:3,band:4", "", Pass::backward}, three_causal, detail::far_backward_families()),
      far_training_entry({"fmm", "causal,maps:3,band:4", "FMM 3 maps, training", Pass::training}, three_causal, {}),
      far_decode_entry({"fmm", "causal,maps:3,band:4", "FMM 3 maps, decoding"}, three_causal, detail::far_decode_families()),
  };
  // clang-format on
}

inline std::vector<Entry> delta_entries() {
  const fovea::DeltaRuleAttention<> op;
  const TokenLoop loop{"token loop", &delta_token_loop};
  // clang-format off
  return {
      far_entry({"delta", "elu", "delta rule"}, op, detail::far_families()),
      far_entry({"delta", "elu,beside:loop"}, op, {detail::far_heads(4, {4096, 16384, 65536})}, loop),
      far_training_entry({"delta", "elu", "", Pass::backward}, op, detail::far_backward_families()),
      far_decode_entry({"delta", "elu"}, op, detail::far_decode_families()),
  };
  // clang-format on
}

/// How time grows from N = 4096 to 65536.
inline std::vector<RowPair> far_row_pairs() {
  std::vector<RowPair> pairs;
  for (const char* row : {"linear/forward/f32/maps:1", "linear/forward/f32/causal,maps:1",
                          "fmm/forward/f32/maps:3,band:4", "fmm/forward/f32/causal,maps:3,band:4",
                          "delta/forward/f32/elu"}) {
    const std::string name = std::string(row) + ",heads:2/D:64/N:";
    pairs.emplace_back(name + "65536", name + "4096");
  }
  return pairs;
}

}  // namespace bench
