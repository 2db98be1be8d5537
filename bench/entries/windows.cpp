// SPDX-License-Identifier: MIT
/// \file
/// Entries of local attention, and of what adds global tokens or random blocks to a window.
#include "bench/entries/operators.hpp"

#include <vector>

#include "bench/entries/decode_entry.hpp"
#include "bench/entries/families.hpp"
#include "bench/entries/sparse_entry.hpp"
#include "fovea/attention/big_bird.hpp"
#include "fovea/attention/local.hpp"
#include "fovea/attention/longformer.hpp"

namespace bench {

namespace {

/// Families of operators that are linear in N.
std::vector<Family> linear_families() {
  return {{.lengths = {2048, 4096, 8192, 16384}}, {.threads = 2, .lengths = {16384}}};
}

}  // namespace

std::vector<Entry> local_entries() {
  using fovea::LocalAttention;
  // clang-format off
  return {
      softmax_entry({"local", "window:128", "local, 128 + 128"}, LocalAttention{{128, 128}}, linear_families()),
      softmax_entry({"local", "causal,window:256", "local, 256, causal"}, LocalAttention{{255, 0}}, {}),
      softmax_entry({"local", "causal,window:256", "local, training", Pass::training}, LocalAttention{{255, 0}}, {}),
      decode_entry({"local", "causal,window:256", "local, decoding"}, LocalAttention{{255, 0}}, {}),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      softmax_entry({"local", "window:4", ""}, LocalAttention{{4, 4}}, linear_families()),
      softmax_entry({"local", "window:128", "", Pass::backward}, LocalAttention{{128, 128}}, {{.lengths = {16384}}}),
#endif
  };
  // clang-format on
}

/// Longformer attention: 256 keys on each side, 64 global tokens at the beginning.
std::vector<Entry> longformer_entries() {
  const fovea::LongformerAttention op({.left = 256, .right = 256, .first_global = 64});
  const fovea::LongformerAttention causal({.left = 256, .first_global = 64, .causal = true});
  // clang-format off
  return {
      softmax_entry({"longformer", "window:256,global:64", "Longformer"}, op, sparse_families()),
      softmax_entry({"longformer", "causal,window:256,global:64", "Longformer, causal"}, causal, {}),
      softmax_entry({"longformer", "causal,window:256,global:64", "Longformer, training", Pass::training}, causal, {}),
      decode_entry({"longformer", "causal,window:256,global:64", "Longformer, decoding"}, causal, {{.lengths = {32768}}}),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      plan_entry({"longformer", "window:256,global:64"}, op, {two_heads({65536})}),
      dense_mask_entry({"longformer", "window:256,global:64"}, op, {two_heads({4096})}),
      softmax_entry({"longformer", "window:256,global:64", "", Pass::backward}, op, sparse_backward_families()),
#endif
  };
  // clang-format on
}

/// BigBird attention: blocks of 64, three of a window, two global ones, three random ones.
std::vector<Entry> big_bird_entries() {
  const fovea::BigBirdAttention op(
      {.block = 64, .window_blocks = 1, .global_blocks = 2, .random_blocks = 3});
  const fovea::BigBirdAttention causal({.block = 64, .causal = true});
  // clang-format off
  return {
      softmax_entry({"bigbird", "block:64", "BigBird"}, op, sparse_families()),
      softmax_entry({"bigbird", "causal,block:64", "BigBird, causal"}, causal, {}),
      softmax_entry({"bigbird", "causal,block:64", "BigBird, training", Pass::training}, causal, {}),
      decode_entry({"bigbird", "causal,block:64", "BigBird, decoding"}, causal, {{.lengths = {32768}}}),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      plan_entry({"bigbird", "block:64"}, op, {two_heads({65536})}),
      dense_mask_entry({"bigbird", "block:64"}, op, {two_heads({4096})}),
      softmax_entry({"bigbird", "block:64", "", Pass::backward}, op, sparse_backward_families()),
#endif
  };
  // clang-format on
}

}  // namespace bench
