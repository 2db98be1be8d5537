// SPDX-License-Identifier: MIT
/// \file
/// Operators, options, sizes, data, places in memory and threads, as bytes choose them.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "attention/big_bird_law.hpp"
#include "attention/cases.hpp"
#include "attention/problem.hpp"
#include "attention/sparse_laws.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fuzz/bytes.hpp"
#include "fuzz/patterns.hpp"
#include "support/levels.hpp"

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

/// The law of a band, by the alignment.
inline Law band_law(fovea::CausalAlignment alignment, Index left, Index right) {
  return alignment == fovea::CausalAlignment::top_left ? top_left_band(left, right)
                                                       : band(left, right);
}

template <class T>
Case<T> drawn_full_case(Bytes& bytes) {
  const fovea::FullAttention op = drawn_full(bytes);
  const auto [left, right] = op.options.window;
  const Law law =
      band_law(op.options.alignment, left, op.options.causal ? std::min<Index>(right, 0) : right);
  return softmax_case<T>("drawn full", op, law, drawn_extras(bytes));
}

template <class T>
Case<T> drawn_local_case(Bytes& bytes) {
  const fovea::LocalAttention op = drawn_local(bytes);
  const Law law = band_law(op.options.alignment, op.options.left, op.options.right);
  return softmax_case<T>("drawn local", op, law, drawn_extras(bytes));
}

/// A law of head, position and key, whose heads are those of `heads`.
template <class First, class Second>
Law heads_law(fovea::HeadAssignment heads, First first, Second second) {
  using enum fovea::HeadAssignment;
  return [=](const Pair& p) {
    const bool sees_first = heads == merged || heads == only_first;
    const bool sees_second = heads == merged || heads == only_second;
    const bool is_even = p.h % 2 == 0;
    const bool shares = heads == separate;
    return ((sees_first || (shares && is_even)) && first(p.i(), p.j)) ||
           ((sees_second || (shares && !is_even)) && second(p.i(), p.j));
  };
}

template <class T>
Case<T> drawn_strided_case(Bytes& bytes) {
  const fovea::StridedAttention op = drawn_strided(bytes);
  const Index l = op.options.stride;
  const Law law = heads_law(
      op.options.heads, [l](Index i, Index j) { return strided_first(i, j, l); },
      [l](Index i, Index j) { return strided_second(i, j, l); });
  return softmax_case<T>("drawn strided", op, law, drawn_extras(bytes));
}

template <class T>
Case<T> drawn_fixed_case(Bytes& bytes) {
  const fovea::FixedAttention op = drawn_fixed(bytes);
  const Index l = op.options.stride;
  const Index c = op.options.summary;
  const Law law = heads_law(
      op.options.heads, [l](Index i, Index j) { return fixed_first(i, j, l); },
      [l, c](Index i, Index j) { return fixed_second(i, j, l, c); });
  return softmax_case<T>("drawn fixed", op, law, drawn_extras(bytes));
}

template <class T>
Case<T> drawn_big_bird_case(Bytes& bytes) {
  const fovea::BigBirdAttention op = drawn_big_bird(bytes);
  Case<T> made =
      softmax_case<T>("drawn BigBird", op, big_bird_law(op.options), drawn_extras(bytes));
  made.in_runs = made.by_head = true;
  return made;
}

template <class T>
Case<T> drawn_sparse_case(Bytes& bytes) {
  const DrawnSparse drawn = drawn_sparse(bytes);
  const Law law = [laws = drawn.laws](const Pair& p) {
    return laws[as_size(p.h) % laws.size()](p.i(), p.j);
  };
  Case<T> made = softmax_case<T>("drawn" + drawn.made, drawn.op, law, drawn_extras(bytes));
  made.in_runs = made.by_head = true;
  return made;
}

/// A case of the conformance suite, or an operator with drawn options.
template <class T>
Case<T> drawn_case(Bytes& bytes) {
  switch (bytes(0, 7)) {
    case 0:
      return drawn_full_case<T>(bytes);
    case 1:
      return drawn_local_case<T>(bytes);
    case 2:
      return drawn_strided_case<T>(bytes);
    case 3:
      return drawn_fixed_case<T>(bytes);
    case 4:
      return bytes.once_in(2) ? drawn_big_bird_case<T>(bytes) : drawn_sparse_case<T>(bytes);
    default:
      return drawn_of(bytes, all_cases<T>());
  }
}

/// A number of rows: the smallest ones, some, or around the sizes of tiles and segments.
inline Index drawn_rows(Bytes& bytes) {
  switch (bytes(0, 5)) {
    case 0:
      return bytes(0, 3);
    case 1:
      return bytes(100, 160);
    case 2:
      return bytes(0, 3) * 128 + bytes(0, 6);
    default:
      return bytes(1, 70);
  }
}

inline Index drawn_width(Bytes& bytes) {
  static const std::vector<Index> whole = {0, 1, 8, 16, 32, 64, 128};
  return bytes.once_in(3) ? drawn_of(bytes, whole) : bytes(1, 40);
}

/// Sizes whose pairs an oracle computes in a few milliseconds.
inline AttentionShape drawn_shape(Bytes& bytes) {
  constexpr Index most_pairs = 40'000;
  AttentionShape s;
  s.queries = drawn_rows(bytes);
  s.keys = bytes.once_in(3) ? s.queries : drawn_rows(bytes);
  s.width = drawn_width(bytes);
  s.value_width = bytes.once_in(3) ? s.width : drawn_width(bytes);
  const Index largest = std::max(s.queries, s.keys);
  const Index heads = std::clamp<Index>(most_pairs / std::max<Index>(1, largest * largest), 1, 8);
  s.key_heads = bytes(1, std::min<Index>(heads, 3));
  s.query_heads = s.key_heads * bytes(1, std::max<Index>(1, heads / s.key_heads));
  s.batch = bytes(1, std::clamp<Index>(heads / s.query_heads, 1, 3));
  return s;
}

/// Data of one kind for each of queries, keys and values.
inline Fills drawn_fills(Bytes& bytes, std::uint64_t seed) {
  switch (bytes(0, 7)) {
    case 0:
      return {constant(1), cancelling(seed, 10), gaussian(seed + 1)};
    case 1:
      return {constant(0), constant(1), gaussian(seed)};
    case 2:
      return {gaussian(seed, 4), gaussian(seed + 1, 4), gaussian(seed + 2, 1e6)};
    case 3:
      return {gaussian(seed, 1e-3), gaussian(seed + 1, 1e-3), gaussian(seed + 2, 1e-20)};
    default:
      return gaussian_fills(seed);
  }
}

/// A problem, packed or with key lengths or neither.
template <class T>
Problem<T> drawn_problem(Bytes& bytes, const Case<T>& op) {
  const AttentionShape shape = drawn_shape(bytes);
  const auto seed = static_cast<std::uint64_t>(bytes(1, 255));
  if (op.packs && bytes.once_in(5)) {
    std::vector<Index> queries;
    std::vector<Index> keys;
    for (Index s = bytes(1, 4); s > 0; --s) {
      queries.push_back(bytes(0, 60));
      keys.push_back(bytes(0, 60));
    }
    return make_packed(op, shape, queries, keys, seed);
  }
  Problem<T> made = make_problem(op, shape, seed, drawn_fills(bytes, seed));
  if (!bytes.once_in(3)) return made;
  for (Index b = 0; b < made.shape.batch; ++b) {
    made.key_lengths.push_back(bytes(0, made.shape.keys));
  }
  return made;
}

/// A place in memory, between guard pages now and then. Tensors that are written lie in it, too:
/// none of its strides is negative.
inline Layout drawn_layout(Bytes& bytes) {
  static const std::vector<std::array<std::size_t, 4>> orders = all_axis_orders();
  Layout layout;
  if (bytes.once_in(2)) layout.order = drawn_of(bytes, orders);
  layout.offset = bytes(0, 20);
  if (bytes.once_in(3)) layout.innermost = bytes(2, 4);
  layout.gap = bytes(0, 9);
  if (bytes.once_in(3)) {
    layout.guard = bytes.once_in(2) ? Guard::before : Guard::behind;
    layout.offset = 0;
  }
  return layout;
}

/// A place for what is read alone: axes may run backwards.
inline Layout drawn_input_layout(Bytes& bytes) {
  Layout layout = drawn_layout(bytes);
  if (bytes.once_in(3)) {
    for (bool& reversed : layout.reversed) reversed = bytes.once_in(2);
  }
  return layout;
}

inline IsaLevel drawn_level(Bytes& bytes) {
  const auto level =
      std::array{IsaLevel::baseline, IsaLevel::v3, IsaLevel::v4}[as_size(bytes(0, 2))];
  return has_level(level) ? level : first_isa_level();
}

/// One of the threads that trials run on.
inline AnyExecutor drawn_executor(Bytes& bytes) {
  static fovea::Serial serial;
  static Backwards backwards;
  static fovea::ThreadPool two(2);
  static fovea::ThreadPool five(5);
  switch (bytes(0, 3)) {
    case 0:
      return AnyExecutor::of(serial);
    case 1:
      return AnyExecutor::of(backwards);
    case 2:
      return AnyExecutor::of(two);
    default:
      return AnyExecutor::of(five);
  }
}

}  // namespace fovea_test
