// SPDX-License-Identifier: MIT
/// \file
/// Entries of the two patterns of Sparse Transformers.
#include "bench/entries/operators.hpp"

#include <vector>

#include "bench/entries/decode_entry.hpp"
#include "bench/entries/families.hpp"
#include "bench/entries/sparse_entry.hpp"
#include "fovea/attention/fixed.hpp"
#include "fovea/attention/strided.hpp"

namespace bench {

namespace {

/// Of an operator whose stride belongs to one length.
std::vector<Family> strided_families() {
  return {{.lengths = {4096, 16384}},
          {.scalar = Scalar::f64, .lengths = {4096}},
          {.threads = 2, .lengths = {16384}},
          two_heads({4096, 16384})};
}

std::vector<Family> sparse_decode_families() {
  return {{.lengths = {4096, 32768}}, {.threads = 2, .lengths = {32768}}};
}

}  // namespace

/// Strided attention: l = 128, near the square root of 16384, and l = 256 = sqrt(65536).
std::vector<Entry> strided_entries() {
  using fovea::HeadAssignment;
  using fovea::StridedAttention;
  const StridedAttention op({.stride = 128});
  const StridedAttention merged({.stride = 128, .heads = HeadAssignment::merged});
  const StridedAttention wide({.stride = 256});
  const StridedAttention wide_merged({.stride = 256, .heads = HeadAssignment::merged});
  const std::vector<Family> masked = {two_heads({4096})};
  const std::vector<Family> longest = {two_heads({65536})};
  // clang-format off
  return {
      softmax_entry({"strided", "stride:128", "strided"}, op, strided_families()),
      dense_mask_entry({"strided", "stride:128", "strided, dense + mask"}, op, masked),
      softmax_entry({"strided", "stride:128", "strided, training", Pass::training}, op, {}),
      decode_entry({"strided", "stride:128", "strided, decoding"}, op, sparse_decode_families()),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      softmax_entry({"strided", "stride:128,merged"}, merged, {{.lengths = {4096, 16384}}, two_heads({4096})}),
      dense_mask_entry({"strided", "stride:128,merged"}, merged, masked),
      softmax_entry({"strided", "stride:256"}, wide, longest),
      plan_entry({"strided", "stride:256"}, wide, longest),
      softmax_entry({"strided", "stride:256,merged"}, wide_merged, longest),
      plan_entry({"strided", "stride:256,merged"}, wide_merged, longest),
      softmax_entry({"strided", "stride:128", "", Pass::backward}, op, sparse_backward_families()),
      softmax_entry({"strided", "stride:128,merged", "", Pass::backward}, merged, {{.lengths = {4096, 16384}}}),
      decode_entry({"strided", "stride:128,merged"}, merged, {{.lengths = {32768}}}),
#endif
  };
  // clang-format on
}

/// Fixed attention: l = 128, c = 8.
std::vector<Entry> fixed_entries() {
  using fovea::FixedAttention;
  const FixedAttention op({.stride = 128, .summary = 8});
  const FixedAttention merged(
      {.stride = 128, .summary = 8, .heads = fovea::HeadAssignment::merged});
  const std::vector<Family> masked = {two_heads({4096})};
  const std::vector<Family> longest = {two_heads({65536})};
  // clang-format off
  return {
      softmax_entry({"fixed", "stride:128,summary:8", "fixed"}, op, sparse_families()),
      softmax_entry({"fixed", "stride:128,summary:8", "fixed, training", Pass::training}, op, {}),
      decode_entry({"fixed", "stride:128,summary:8", "fixed, decoding"}, op, sparse_decode_families()),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      plan_entry({"fixed", "stride:128,summary:8"}, op, longest),
      softmax_entry({"fixed", "stride:128,summary:8,merged"}, merged, few_families()),
      plan_entry({"fixed", "stride:128,summary:8,merged"}, merged, longest),
      dense_mask_entry({"fixed", "stride:128,summary:8"}, op, masked),
      dense_mask_entry({"fixed", "stride:128,summary:8,merged"}, merged, masked),
      softmax_entry({"fixed", "stride:128,summary:8", "", Pass::backward}, op, sparse_backward_families()),
      softmax_entry({"fixed", "stride:128,summary:8,merged", "", Pass::backward}, merged, {{.lengths = {4096, 16384}}}),
      decode_entry({"fixed", "stride:128,summary:8,merged"}, merged, {{.lengths = {32768}}}),
#endif
  };
  // clang-format on
}

}  // namespace bench
