// SPDX-License-Identifier: MIT
/// \file
/// Entries of full attention, and of the same with Eigen's matrices.
#include "bench/entries/operators.hpp"

#include <vector>

#include "bench/entries/decode_entry.hpp"
#include "fovea/attention/full.hpp"

namespace bench {

namespace {

/// Families of full attention, dense: every width that a kernel treats differently.
std::vector<Family> dense_families() {
  return {{.lengths = {512, 1024, 2048, 4096, 8192}}, {.width = 32, .lengths = {4096}},
          {.width = 80, .lengths = {4096}},           {.width = 128, .lengths = {2048}},
          {.scalar = Scalar::f64, .lengths = {2048}}, {.threads = 2, .lengths = {4096}}};
}

std::vector<Family> causal_families() {
  return {{.lengths = {512, 1024, 2048, 4096, 8192}},
          {.scalar = Scalar::f64, .lengths = {2048}},
          {.threads = 2, .lengths = {4096}},
          {.lengths = {16384}, .heads = 2, .key_heads = 2}};
}

/// One query after N keys: heads, one head, heads that share a key head, threads.
std::vector<Family> decode_families() {
  return {{.lengths = {4096, 32768}},
          {.lengths = {32768}, .heads = 1, .key_heads = 1},
          {.lengths = {32768}, .heads = 8, .key_heads = 1},
          {.threads = 2, .lengths = {32768}},
          {.threads = 2, .lengths = {32768}, .heads = 1, .key_heads = 1}};
}

std::vector<Family> option_families() { return {{.lengths = {4096}}}; }

std::vector<Family> backward_families() {
  return {{.lengths = {1024, 2048, 4096}},
          {.width = 128, .lengths = {2048}},
          {.scalar = Scalar::f64, .lengths = {2048}},
          {.threads = 2, .lengths = {4096}},
          {.lengths = {4096}, .heads = 1, .key_heads = 1},
          {.threads = 2, .lengths = {4096}, .heads = 1, .key_heads = 1}};
}

std::vector<Family> baseline_families() { return {{.lengths = {1024, 4096}}}; }

}  // namespace

std::vector<Entry> full_entries() {
  using fovea::FullAttention;
  // clang-format off
  return {
      softmax_entry({"full", "dense", "full"}, FullAttention{}, dense_families()),
      softmax_entry({"full", "causal", "full, causal"}, FullAttention{{.causal = true}}, causal_families()),
      training_entry({"full", "causal", "full, causal, training", Pass::training}, FullAttention{{.causal = true}}, {}),
      decode_entry({"full", "", "full, decoding"}, FullAttention{}, decode_families()),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      extra_entry({"full", "bias", ""}, FullAttention{}, Extra::bias, option_families()),
      extra_entry({"full", "mask", ""}, FullAttention{}, Extra::mask, option_families()),
      extra_entry({"full", "alibi", ""}, FullAttention{}, Extra::alibi, option_families()),
      softmax_entry({"full", "soft_cap", ""}, FullAttention{{.soft_cap = 30}}, option_families()),
      training_entry({"full", "dense", "", Pass::backward}, FullAttention{}, backward_families()),
      training_entry({"full", "causal", "", Pass::backward}, FullAttention{{.causal = true}}, backward_families()),
      decode_entry<Eigen::bfloat16>({.op = "full", .storage = "bf16"}, FullAttention{}, {{.lengths = {32768}}}),
      decode_entry<Eigen::half>({.op = "full", .storage = "f16"}, FullAttention{}, {{.lengths = {32768}}}),
#endif
  };
  // clang-format on
}

std::vector<Entry> eigen_entries() {
  constexpr Index whole = EigenBaseline::kWholeMatrix;
  // clang-format off
  return {
      eigen_entry({"naive_eigen", "dense", "Eigen, naive"}, {whole, false}, baseline_families()),
      eigen_entry({"naive_eigen", "causal", "Eigen, naive, causal"}, {whole, true}, baseline_families()),
      eigen_entry({"blocked_eigen", "dense", "Eigen, blocked"}, {128, false}, baseline_families()),
      eigen_entry({"blocked_eigen", "causal", "Eigen, blocked, causal"}, {128, true}, baseline_families()),
  };
  // clang-format on
}

}  // namespace bench
