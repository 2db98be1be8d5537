// SPDX-License-Identifier: MIT
/// \file
/// The operators that fovea_bench times and fovea_compare compares: one line for each pass and
/// choice of options. The first ones are full attention, not causal and causal, which fovea_compare
/// measures the others against.
#pragma once

#include <vector>

#include "bench/entries/decode_entry.hpp"
#include "bench/entries/far_operators.hpp"
#include "bench/entries/fsat_entry.hpp"
#include "bench/entries/smart_bird_operators.hpp"
#include "bench/entries/sparse_operators.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/attention/local.hpp"

namespace bench {

/// Families of full attention, dense: every width that a kernel treats differently.
inline std::vector<Family> dense_families() {
  return {{.lengths = {512, 1024, 2048, 4096, 8192}}, {.width = 32, .lengths = {4096}},
          {.width = 80, .lengths = {4096}},           {.width = 128, .lengths = {2048}},
          {.scalar = Scalar::f64, .lengths = {2048}}, {.threads = 2, .lengths = {4096}}};
}

inline std::vector<Family> causal_families() {
  return {{.lengths = {512, 1024, 2048, 4096, 8192}},
          {.scalar = Scalar::f64, .lengths = {2048}},
          {.threads = 2, .lengths = {4096}},
          {.lengths = {16384}, .heads = 2, .key_heads = 2}};
}

/// Families of operators that are linear in N.
inline std::vector<Family> linear_families() {
  return {{.lengths = {2048, 4096, 8192, 16384}}, {.threads = 2, .lengths = {16384}}};
}

/// One query after N keys: heads, one head, heads that share a key head, threads.
inline std::vector<Family> decode_families() {
  return {{.lengths = {4096, 32768}},
          {.lengths = {32768}, .heads = 1, .key_heads = 1},
          {.lengths = {32768}, .heads = 8, .key_heads = 1},
          {.threads = 2, .lengths = {32768}},
          {.threads = 2, .lengths = {32768}, .heads = 1, .key_heads = 1}};
}

inline std::vector<Family> option_families() { return {{.lengths = {4096}}}; }

inline std::vector<Family> backward_families() {
  return {{.lengths = {1024, 2048, 4096}},
          {.width = 128, .lengths = {2048}},
          {.scalar = Scalar::f64, .lengths = {2048}},
          {.threads = 2, .lengths = {4096}},
          {.lengths = {4096}, .heads = 1, .key_heads = 1},
          {.threads = 2, .lengths = {4096}, .heads = 1, .key_heads = 1}};
}

inline std::vector<Family> baseline_families() { return {{.lengths = {1024, 4096}}}; }

inline std::vector<Entry> full_entries() {
  using fovea::FullAttention;
  // clang-format off
  return {
      softmax_entry({"full", "dense", "full"}, FullAttention{}, dense_families()),
      softmax_entry({"full", "causal", "full, causal"}, FullAttention{{.causal = true}}, causal_families()),
      extra_entry({"full", "bias", ""}, FullAttention{}, Extra::bias, option_families()),
      extra_entry({"full", "mask", ""}, FullAttention{}, Extra::mask, option_families()),
      extra_entry({"full", "alibi", ""}, FullAttention{}, Extra::alibi, option_families()),
      softmax_entry({"full", "soft_cap", ""}, FullAttention{{.soft_cap = 30}}, option_families()),
      training_entry({"full", "dense", "", Pass::backward}, FullAttention{}, backward_families()),
      training_entry({"full", "causal", "", Pass::backward}, FullAttention{{.causal = true}}, backward_families()),
      training_entry({"full", "causal", "full, causal, training", Pass::training}, FullAttention{{.causal = true}}, {}),
      decode_entry({"full", "", "full, decoding"}, FullAttention{}, decode_families()),
      decode_entry<Eigen::bfloat16>({.op = "full", .storage = "bf16"}, FullAttention{}, {{.lengths = {32768}}}),
      decode_entry<Eigen::half>({.op = "full", .storage = "f16"}, FullAttention{}, {{.lengths = {32768}}}),
  };
  // clang-format on
}

inline std::vector<Entry> local_entries() {
  using fovea::LocalAttention;
  // clang-format off
  return {
      softmax_entry({"local", "window:128", "local, 128 + 128"}, LocalAttention{{128, 128}}, linear_families()),
      softmax_entry({"local", "window:4", ""}, LocalAttention{{4, 4}}, linear_families()),
      training_entry({"local", "window:128", "", Pass::backward}, LocalAttention{{128, 128}}, {{.lengths = {16384}}}),
  };
  // clang-format on
}

inline std::vector<Entry> eigen_entries() {
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

/// The ratios beside those that `row_pairs` finds.
inline std::vector<RowPair> operator_row_pairs() {
  std::vector<RowPair> pairs = sparse_row_pairs();
  for (const RowPair& pair : far_row_pairs()) pairs.push_back(pair);
  return pairs;
}

/// Every operator, in the order of the table.
inline std::vector<Entry> operators() {
  std::vector<Entry> all;
  for (const auto& entries :
       {full_entries(), local_entries(), strided_entries(), fixed_entries(), longformer_entries(),
        big_bird_entries(), linear_entries(), fmm_entries(), delta_entries(), smart_bird_entries(),
        indexed_entries(), sketch_entries(), fsat_entries(), eigen_entries()}) {
    all.insert(all.end(), entries.begin(), entries.end());
  }
  return all;
}

}  // namespace bench
