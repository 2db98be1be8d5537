// SPDX-License-Identifier: MIT
/// \file
/// The entries of the sparse operators, one function for each, and the ratios that they are judged
/// by.
#pragma once

#include <vector>

#include "bench/entries/decode_entry.hpp"
#include "bench/entries/sparse_entry.hpp"
#include "bench/measure/ratios.hpp"
#include "fovea/attention/big_bird.hpp"
#include "fovea/attention/fixed.hpp"
#include "fovea/attention/longformer.hpp"
#include "fovea/attention/strided.hpp"

namespace bench {

namespace detail {

/// Two heads, one of each pattern where heads differ: the rows that ratios are made of.
inline Family two_heads(std::vector<Index> lengths) {
  return {.lengths = std::move(lengths), .heads = 2, .key_heads = 2};
}

inline std::vector<Family> sparse_families() {
  return {{.lengths = {4096, 16384}},
          {.scalar = Scalar::f64, .lengths = {4096}},
          {.threads = 2, .lengths = {16384}},
          two_heads({4096, 65536})};
}

/// Of further choices of an operator's options.
inline std::vector<Family> few_sparse_families() {
  return {{.lengths = {4096, 16384}}, two_heads({4096, 65536})};
}

/// Of an operator whose stride belongs to one length.
inline std::vector<Family> strided_families() {
  return {{.lengths = {4096, 16384}},
          {.scalar = Scalar::f64, .lengths = {4096}},
          {.threads = 2, .lengths = {16384}},
          two_heads({4096, 16384})};
}

inline std::vector<Family> sparse_backward_families() {
  return {{.lengths = {4096, 16384}},
          {.scalar = Scalar::f64, .lengths = {4096}},
          {.threads = 2, .lengths = {16384}}};
}

inline std::vector<Family> sparse_decode_families() {
  return {{.lengths = {4096, 32768}}, {.threads = 2, .lengths = {32768}}};
}

inline const char* const kStridedRows = "strided/forward/f32/stride:128,heads:2/D:64/N:16384";

}  // namespace detail

/// Strided attention: l = 128, near the square root of 16384, and l = 256 = sqrt(65536).
inline std::vector<Entry> strided_entries() {
  using fovea::HeadAssignment;
  using fovea::StridedAttention;
  const StridedAttention op({.stride = 128});
  const StridedAttention merged({.stride = 128, .heads = HeadAssignment::merged});
  const StridedAttention wide({.stride = 256});
  const StridedAttention wide_merged({.stride = 256, .heads = HeadAssignment::merged});
  const std::vector<Family> masked = {detail::two_heads({4096})};
  const std::vector<Family> longest = {detail::two_heads({65536})};
  // clang-format off
  return {
      softmax_entry({"strided", "stride:128", "strided"}, op, detail::strided_families()),
      softmax_entry({"strided", "stride:128,merged"}, merged, {{.lengths = {4096, 16384}}, detail::two_heads({4096})}),
      dense_mask_entry({"strided", "stride:128", "strided, dense + mask"}, op, masked),
      dense_mask_entry({"strided", "stride:128,merged"}, merged, masked),
      softmax_entry({"strided", "stride:256"}, wide, longest),
      plan_entry({"strided", "stride:256"}, wide, longest),
      softmax_entry({"strided", "stride:256,merged"}, wide_merged, longest),
      plan_entry({"strided", "stride:256,merged"}, wide_merged, longest),
      training_entry({"strided", "stride:128", "", Pass::backward}, op, detail::sparse_backward_families()),
      training_entry({"strided", "stride:128,merged", "", Pass::backward}, merged, {{.lengths = {4096, 16384}}}),
      training_entry({"strided", "stride:128", "strided, training", Pass::training}, op, {}),
      decode_entry({"strided", "stride:128", "strided, decoding"}, op, detail::sparse_decode_families()),
      decode_entry({"strided", "stride:128,merged"}, merged, {{.lengths = {32768}}}),
  };
  // clang-format on
}

/// Fixed attention: l = 128, c = 8.
inline std::vector<Entry> fixed_entries() {
  using fovea::FixedAttention;
  const FixedAttention op({.stride = 128, .summary = 8});
  const FixedAttention merged(
      {.stride = 128, .summary = 8, .heads = fovea::HeadAssignment::merged});
  const std::vector<Family> masked = {detail::two_heads({4096})};
  const std::vector<Family> longest = {detail::two_heads({65536})};
  // clang-format off
  return {
      softmax_entry({"fixed", "stride:128,summary:8", "fixed"}, op, detail::sparse_families()),
      plan_entry({"fixed", "stride:128,summary:8"}, op, longest),
      softmax_entry({"fixed", "stride:128,summary:8,merged"}, merged, detail::few_sparse_families()),
      plan_entry({"fixed", "stride:128,summary:8,merged"}, merged, longest),
      dense_mask_entry({"fixed", "stride:128,summary:8"}, op, masked),
      dense_mask_entry({"fixed", "stride:128,summary:8,merged"}, merged, masked),
      training_entry({"fixed", "stride:128,summary:8", "", Pass::backward}, op, detail::sparse_backward_families()),
      training_entry({"fixed", "stride:128,summary:8,merged", "", Pass::backward}, merged, {{.lengths = {4096, 16384}}}),
      decode_entry({"fixed", "stride:128,summary:8", "fixed, decoding"}, op, detail::sparse_decode_families()),
      decode_entry({"fixed", "stride:128,summary:8,merged"}, merged, {{.lengths = {32768}}}),
  };
  // clang-format on
}

/// Longformer attention: 256 keys on each side, 64 global tokens at the beginning.
inline std::vector<Entry> longformer_entries() {
  const fovea::LongformerAttention op({.left = 256, .right = 256, .first_global = 64});
  const fovea::LongformerAttention causal({.left = 256, .first_global = 64, .causal = true});
  // clang-format off
  return {
      softmax_entry({"longformer", "window:256,global:64", "Longformer"}, op, detail::sparse_families()),
      plan_entry({"longformer", "window:256,global:64"}, op, {detail::two_heads({65536})}),
      dense_mask_entry({"longformer", "window:256,global:64"}, op, {detail::two_heads({4096})}),
      training_entry({"longformer", "window:256,global:64", "", Pass::backward}, op, detail::sparse_backward_families()),
      decode_entry({"longformer", "causal,window:256,global:64"}, causal, {{.lengths = {32768}}}),
  };
  // clang-format on
}

/// BigBird attention: blocks of 64, three of a window, two global ones, three random ones.
inline std::vector<Entry> big_bird_entries() {
  const fovea::BigBirdAttention op(
      {.block = 64, .window_blocks = 1, .global_blocks = 2, .random_blocks = 3});
  const fovea::BigBirdAttention causal({.block = 64, .causal = true});
  // clang-format off
  return {
      softmax_entry({"bigbird", "block:64", "BigBird"}, op, detail::sparse_families()),
      plan_entry({"bigbird", "block:64"}, op, {detail::two_heads({65536})}),
      dense_mask_entry({"bigbird", "block:64"}, op, {detail::two_heads({4096})}),
      training_entry({"bigbird", "block:64", "", Pass::backward}, op, detail::sparse_backward_families()),
      decode_entry({"bigbird", "causal,block:64"}, causal, {{.lengths = {32768}}}),
  };
  // clang-format on
}

/// The ratios beside those that `row_pairs` finds: growth from N to 4 N where l is the square root
/// of N, and the speed-up over causal full attention.
inline std::vector<RowPair> sparse_row_pairs() {
  return {{"strided/forward/f32/stride:256,heads:2/D:64/N:65536", detail::kStridedRows},
          {"full/forward/f32/causal,heads:2/D:64/N:16384", detail::kStridedRows}};
}

}  // namespace bench
