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

/// Draws what the softmax operators share.
template <class Options>
void draw_softmax(Bytes& bytes, Options& options) {
  if (bytes.once_in(3)) options.scale = static_cast<double>(bytes(-20, 20)) / 10;
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

/// An operator over patterns, and the laws that heads follow in turn.
struct DrawnSparse {
  fovea::SparseAttention op{fovea::SparseOptions{}};
  std::vector<std::function<bool(Index, Index)>> laws = {};
  std::string made = {};
};

/// Trees of patterns, or such a tree and what another one shows besides in a stage of its own.
inline DrawnSparse drawn_sparse(Bytes& bytes) {
  constexpr Index keys = 390;  // of blocks that are listed
  DrawnSparse drawn;
  draw_softmax(bytes, drawn.op.options);
  for (Index n = bytes(1, 2); n > 0; --n) {
    const DrawnPattern tree = drawn_tree(bytes, keys, 2);
    drawn.op.options.patterns.emplace_back(tree.pattern);
    drawn.laws.push_back(tree.law);
    drawn.made.append(", ").append(tree.made);
    if (!bytes.once_in(3)) continue;
    const DrawnPattern second = drawn_tree(bytes, keys, 1);
    try {
      drawn.op.options.patterns.back() = fovea::in_stages(tree.pattern, second.pattern);
      drawn.laws.back() = [a = tree.law, b = second.law](Index i, Index j) {
        return a(i, j) || b(i, j);
      };
      drawn.made.append(" and in a stage ").append(second.made);
    } catch (const std::invalid_argument&) {
      // Lattices that do not cut one another.
    }
  }
  return drawn;
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
  op.options.near.left = bytes(0, most);
  op.options.near.right = is_causal ? 0 : bytes(0, most);
  op.options.normalise_rows = bytes.once_in(3);
  return op;
}

}  // namespace fovea_test
