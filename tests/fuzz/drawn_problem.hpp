// SPDX-License-Identifier: MIT
/// \file
/// Cases, sizes, data, places in memory and threads, as bytes choose them.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "attention/poisons.hpp"
#include "attention/problem.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fuzz/bytes.hpp"
#include "fuzz/drawn_operators.hpp"
#include "support/levels.hpp"

namespace fovea_test {

/// A case of the conformance suite, or an operator with drawn options. T is float or double.
template <class T>
Case<T> drawn_case(Bytes& bytes);
/// One of those in drawn_other_cases.cpp.
template <class T>
Case<T> drawn_other_case(Bytes& bytes);

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
  if (op.packs && op.least_keys == 0 && bytes.once_in(5)) {
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

/// Puts NaN, infinity or the largest number into the rows of tensors from the lengths on.
template <class T>
void poison_rows(Bytes& bytes, const std::vector<Index>& lengths,
                 const std::vector<const Tensor<T>*>& tensors) {
  const std::vector<T> poisons = all_poisons<T>();
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    for (const Tensor<T>* x : tensors) {
      for (Index i = lengths[b]; i < x->shape()[2]; ++i) {
        set_row(*x, static_cast<Index>(b), i, drawn_of(bytes, poisons));
      }
    }
  }
}

/// A memory layout, sometimes between guard pages. It is also used for outputs, so no stride is
/// negative.
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
