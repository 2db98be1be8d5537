// SPDX-License-Identifier: MIT
/// \file
/// Entries of Smart Bird attention and its parts: attention over lists of keys, and the training of
/// a sketch, which is full attention with one head and few dimensions.
#include "bench/entries/operators.hpp"

#include <vector>

#include "bench/entries/far_entry.hpp"
#include "bench/entries/smart_bird_entry.hpp"
#include "fovea/attention/full.hpp"

namespace bench {

namespace {

std::vector<Family> list_families() {
  return {{.lengths = {1024, 4096, 16384, 65536}}, {.threads = 2, .lengths = {16384}}};
}

std::vector<Family> list_backward_families() {
  return {{.lengths = {1024, 4096, 16384}}, {.threads = 2, .lengths = {16384}}};
}

}  // namespace

/// As in the paper: K = 20, a sketch of 4 dimensions.
std::vector<Entry> smart_bird_entries() {
  using fovea::FullAttention;
  const SmartBirdAttention op({.keys_per_row = kKeysPerRow});
  const SmartBirdAttention causal({.keys_per_row = kKeysPerRow, .causal = true});
  const ForwardPasses<FullAttention> full{"full", {FullAttention{}}};
  const std::vector<Family> of_full = {{.lengths = {4096, 16384}}};
  // clang-format off
  return {
      list_entry({"smart_bird", "keys:20", "Smart Bird"}, op, list_families()),
      list_entry({"smart_bird", "causal,keys:20", "Smart Bird, causal"}, causal, {}),
      list_entry({"smart_bird", "causal,keys:20", "Smart Bird, training", Pass::training}, causal, {}),
      list_decode_entry({"smart_bird", "keys:20", "Smart Bird, decoding"}, op, {{.lengths = {4096}}, {.threads = 2, .lengths = {4096}}}),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      select_entry({"smart_bird", "keys:20"}, op, list_families()),
      list_entry({"smart_bird", "keys:20,beside:full"}, op, of_full, full),
      list_entry({"smart_bird", "keys:20", "", Pass::backward}, op, list_backward_families()),
#endif
  };
  // clang-format on
}

#if !defined(FOVEA_BENCH_COMPARED_ONLY)
/// Lists of 20 random keys: the loads that no cache line is shared by.
std::vector<Entry> indexed_entries() {
  const IndexedAttention op;
  return {list_entry({"indexed", "random:20"}, op, list_families()),
          list_entry({"indexed", "random:20", "", Pass::backward}, op, list_backward_families())};
}

/// What trains a sketch: section 3.1 of the paper.
std::vector<Entry> sketch_entries() {
  const fovea::FullAttention op;
  const std::vector<Family> one_head = {
      {.width = 4, .lengths = {1024, 4096}, .heads = 1, .key_heads = 1}};
  return {softmax_entry({"sketch", ""}, op, one_head),
          softmax_entry({"sketch", "", "", Pass::backward}, op, one_head)};
}
#endif

}  // namespace bench
