// SPDX-License-Identifier: MIT
/// \file
/// Operators with options as bytes choose them.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention/case.hpp"
#include "fuzz/bytes.hpp"
#include "fuzz/patterns.hpp"

namespace fovea_test {

/// One of the list.
template <class T>
const T& drawn_of(Bytes& bytes, const std::vector<T>& all) {
  return all[as_size(bytes(0, std::ssize(all) - 1))];
}

/// Optional inputs for softmax attention.
inline Extras drawn_extras(Bytes& bytes) {
  static const std::vector<std::string> dims = {"",   "bhqk", "hqk", "bqk", "qk", "bk",
                                                "hk", "hq",   "bq",  "h",   "k",  "q"};
  Extras extras;
  if (bytes.once_in(3)) extras.bias = drawn_of(bytes, dims);
  if (bytes.once_in(3)) extras.mask = drawn_of(bytes, dims);
  extras.alibi = bytes.once_in(4);
  extras.sink = bytes.once_in(4);
  return extras;
}

/// A scale of logits, or none.
inline std::optional<double> drawn_scale(Bytes& bytes) {
  if (!bytes.once_in(3)) return {};
  return static_cast<double>(bytes(-20, 20)) / 10;
}

/// Draws what the softmax operators share.
template <class Options>
void draw_softmax(Bytes& bytes, Options& options) {
  options.scale = drawn_scale(bytes);
  if (bytes.once_in(4)) options.soft_cap = static_cast<double>(bytes(1, 40)) / 8;
  if (bytes.once_in(4)) {
    options.dropout = {.probability = static_cast<double>(bytes(1, 9)) / 10,
                       .seed = static_cast<std::uint64_t>(bytes(0, 65535))};
  }
}

/// Full attention, causal or not, with a window or without.
inline fovea::FullAttention drawn_full(Bytes& bytes) {
  fovea::FullAttention op;
  draw_softmax(bytes, op.options);
  op.options.causal = bytes.once_in(2);
  if (bytes.once_in(4)) op.options.alignment = fovea::CausalAlignment::top_left;
  if (bytes.once_in(2)) op.options.window = {bytes(0, 300), bytes(0, 300)};
  return op;
}

inline fovea::LocalAttention drawn_local(Bytes& bytes) {
  fovea::LocalAttention op;
  draw_softmax(bytes, op.options);
  const Index most = bytes.once_in(2) ? 8 : 300;
  op.options.left = bytes(0, most);
  op.options.right = bytes(0, most);
  if (bytes.once_in(4)) op.options.alignment = fovea::CausalAlignment::top_left;
  return op;
}

inline fovea::HeadAssignment drawn_heads(Bytes& bytes) {
  using enum fovea::HeadAssignment;
  return std::array{separate, merged, only_first, only_second}[as_size(bytes(0, 3))];
}

inline fovea::StridedAttention drawn_strided(Bytes& bytes) {
  fovea::StridedAttention op;
  draw_softmax(bytes, op.options);
  op.options.stride = bytes.once_in(2) ? bytes(1, 20) : bytes(1, 200);
  op.options.heads = drawn_heads(bytes);
  return op;
}

inline fovea::FixedAttention drawn_fixed(Bytes& bytes) {
  fovea::FixedAttention op;
  draw_softmax(bytes, op.options);
  op.options.stride = bytes.once_in(2) ? bytes(1, 20) : bytes(1, 200);
  op.options.summary = bytes(1, std::min<Index>(op.options.stride, 40));
  op.options.heads = drawn_heads(bytes);
  return op;
}

inline fovea::BigBirdAttention drawn_big_bird(Bytes& bytes) {
  fovea::BigBirdAttention op;
  draw_softmax(bytes, op.options);
  op.options.block = bytes.once_in(2) ? bytes(1, 16) : bytes(17, 70);
  op.options.window_blocks = bytes(0, 2);
  op.options.global_blocks = bytes(0, 2);
  op.options.random_blocks = bytes(0, 3);
  op.options.causal = bytes.once_in(2);
  if (!op.options.causal) op.options.last_global_blocks = bytes(0, 2);
  op.options.seed = static_cast<std::uint64_t>(bytes(0, 255));
  return op;
}

inline fovea::LongformerOptions drawn_longformer(Bytes& bytes) {
  fovea::LongformerOptions options;
  draw_softmax(bytes, options);
  const Index most = bytes.once_in(2) ? 8 : 300;
  options.left = bytes(0, most);
  options.right = bytes(0, most);
  options.causal = bytes.once_in(2);
  if (bytes.once_in(2)) options.first_global = bytes.once_in(3) ? bytes(0, 400) : bytes(0, 4);
  if (bytes.once_in(3)) {
    Index next = options.first_global;
    for (Index n = bytes(1, 3); n > 0; --n) {
      next += bytes(0, 30);
      options.global.push_back(next++);
    }
  }
  if (bytes.once_in(4)) options.alignment = fovea::CausalAlignment::top_left;
  return options;
}

/// The keys that a sequence must have for its global positions.
inline Index least_keys(const fovea::LongformerOptions& options) {
  return options.global.empty() ? 0 : options.global.back() + 1;
}

inline std::string describe(const fovea::LongformerOptions& options) {
  std::string text = "left " + std::to_string(options.left) + ", right " +
                     std::to_string(options.right) + ", first " +
                     std::to_string(options.first_global) + ", global";
  for (const Index i : options.global) text += " " + std::to_string(i);
  return text + (options.causal ? ", causal" : "");
}

/// Lists of blocks for some heads, in which rows may have none.
inline fovea::BlockSparseOptions drawn_block_sparse(Bytes& bytes) {
  fovea::BlockSparseOptions options;
  draw_softmax(bytes, options);
  options.block = bytes.once_in(2) ? bytes(1, 16) : bytes(17, 150);
  options.causal = bytes.once_in(2);
  if (bytes.once_in(4)) options.alignment = fovea::CausalAlignment::top_left;
  const Index columns = bytes(0, std::min<Index>(200 / options.block + 1, 12));
  const auto seed = static_cast<std::uint64_t>(bytes(0, 255));
  const auto density = static_cast<std::uint64_t>(bytes(1, 4));
  for (Index head = bytes(0, 2); head >= 0; --head) {
    fovea::BlockRows rows{{0}, {}};
    for (Index row = bytes(0, std::min<Index>(390 / options.block + 1, 40)); row > 0; --row) {
      for (Index column = 0; column < columns; ++column) {
        if (hash(seed, head, row, column, 0) % density == 0) rows.columns.push_back(column);
      }
      rows.offsets.push_back(std::ssize(rows.columns));
    }
    options.layouts.push_back(rows);
  }
  return options;
}

/// The keys that a sequence must have for the blocks that are listed.
inline Index least_keys(const fovea::BlockSparseOptions& options) {
  Index most = -1;
  for (const fovea::BlockRows& rows : options.layouts) {
    for (const Index column : rows.columns) most = std::max(most, column);
  }
  return most * options.block + (most < 0 ? options.block : 1);
}

/// An operator over patterns, and the reference masks that heads follow in turn.
struct DrawnSparse {
  fovea::SparseAttention op{fovea::SparseOptions{}};
  std::vector<std::function<bool(Index, Index)>> reference_masks = {};
  std::string made = {};
};

/// Trees of patterns, or such a tree and another one in a separate pass.
inline DrawnSparse drawn_sparse(Bytes& bytes) {
  constexpr Index keys = 390;  // of blocks that are listed
  DrawnSparse drawn;
  draw_softmax(bytes, drawn.op.options);
  for (Index n = bytes(1, 2); n > 0; --n) {
    const DrawnPattern tree = drawn_tree(bytes, keys, 2);
    drawn.op.options.patterns.emplace_back(tree.pattern);
    drawn.reference_masks.push_back(tree.reference_mask);
    drawn.made.append(", ").append(tree.made);
    if (!bytes.once_in(3)) continue;
    const DrawnPattern second = drawn_tree(bytes, keys, 1);
    try {
      drawn.op.options.patterns.back() = fovea::in_passes(tree.pattern, second.pattern);
      drawn.reference_masks.back() = [a = tree.reference_mask, b = second.reference_mask](
                                         Index i, Index j) { return a(i, j) || b(i, j); };
      drawn.made.append(" and in a stage ").append(second.made);
    } catch (const std::invalid_argument&) {
      // StridedRanges that do not cut one another.
    }
  }
  return drawn;
}

inline fovea::SmartBirdOptions drawn_smart_bird(Bytes& bytes) {
  using enum fovea::SketchSearch;
  using enum fovea::SamplingPolicy;
  fovea::SmartBirdOptions options;
  options.keys_per_row = bytes.once_in(3) ? bytes(1, 300) : bytes(1, 24);
  options.policy = std::array{squared_inverse_log, inverse_log, raw, top_k,
                              fovea::SamplingPolicy::random}[as_size(bytes(0, 4))];
  options.seed = static_cast<std::uint64_t>(bytes(0, 255));
  options.causal = bytes.once_in(2);
  options.scale = drawn_scale(bytes);
  options.sketch_scale = drawn_scale(bytes);
  options.search = std::array{automatic, exhaustive, blocks}[as_size(bytes(0, 2))];
  return options;
}

/// \param tokens of the longest sequence
inline fovea::FsatOptions drawn_fsat(Bytes& bytes, Index tokens) {
  using enum fovea::EdgeSource;
  fovea::FsatOptions options;
  options.max_length = std::max<Index>(1, tokens) + (bytes.once_in(8) ? 65'536 : bytes(0, 20));
  if (bytes.once_in(3)) options.variance = static_cast<double>(bytes(1, 80)) / 4;
  options.confidence = bytes.once_in(2) ? fovea::Confidence::relative : fovea::Confidence::density;
  options.edges = std::array{predicted, fovea::EdgeSource::random, both}[as_size(bytes(0, 2))];
  options.seed = static_cast<std::uint64_t>(bytes(0, 255));
  options.truncate_gradient = bytes.once_in(2);
  options.scale = drawn_scale(bytes);
  return options;
}

inline fovea::Denominator drawn_denominator(Bytes& bytes) {
  return bytes.once_in(2) ? fovea::Denominator::zero_row() : fovea::Denominator::signed_floor(0.05);
}

template <class... Maps>
fovea::LinearAttention<Maps...> drawn_linear(Bytes& bytes) {
  using enum fovea::CombineMaps;
  return fovea::LinearAttention<Maps...>(
      {.causal = bytes.once_in(2),
       .denominator = drawn_denominator(bytes),
       .combine = std::array{sum, mean, joint}[as_size(bytes(0, 2))]});
}

/// Logits of the blend of both fields, if there are any.
inline Extras drawn_blend(Bytes& bytes) {
  static const std::vector<std::string> dims = {"", "1", "h", "d", "hd"};
  return {.near_logits = drawn_of(bytes, dims), .far_logits = drawn_of(bytes, dims)};
}

template <class Op>
Op drawn_fmm(Bytes& bytes, bool is_causal) {
  Op op;
  const Index most = bytes.once_in(2) ? 6 : 150;
  op.options.causal = is_causal;
  op.options.band.left = bytes(0, most);
  op.options.band.right = is_causal ? 0 : bytes(0, most);
  op.options.normalise_rows = bytes.once_in(3);
  return op;
}

}  // namespace fovea_test
