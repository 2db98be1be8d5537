// SPDX-License-Identifier: MIT
/// \file
/// One trial of patterns: a tree of unions, joins, differences and intersections, and its passes,
/// against the reference mask that follows from its leaves. What is wrong is said by GoogleTest's
/// expectations.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "fovea/patterns/block_list.hpp"
#include "fovea/patterns/fixed.hpp"
#include "fovea/patterns/global.hpp"
#include "fovea/patterns/random_blocks.hpp"
#include "fuzz/bytes.hpp"
#include "patterns/erased_pattern.hpp"

namespace fovea_test {

/// A pattern, the reference mask that it must follow, and how it was made.
struct DrawnPattern {
  ErasedPattern pattern;
  std::function<bool(Index, Index)> reference_mask;
  std::string made;
};

template <class P>
DrawnPattern leaf(const P& pattern, std::string made) {
  return {ErasedPattern::of(pattern), [pattern](Index i, Index j) { return pattern.allows(i, j); },
          std::move(made)};
}

/// Blocks of keys for each block of queries.
inline DrawnPattern drawn_blocks(Bytes& bytes, Index keys) {
  const Index size = bytes(1, 16);
  const Index blocks = keys / size + 1;
  const auto seed = static_cast<std::uint64_t>(bytes(0, 255));
  fovea::BlockRows rows;
  rows.offsets = {0};
  for (Index query = 0; query < blocks; ++query) {
    for (Index key = 0; key < blocks; ++key) {
      if (hash(seed, query, key, 0, 0) % 3 == 0) rows.columns.push_back(key);
    }
    rows.offsets.push_back(std::ssize(rows.columns));
  }
  return leaf(fovea::BlockList(size, blocks, rows), "blocks of " + std::to_string(size));
}

inline DrawnPattern drawn_leaf(Bytes& bytes, Index keys) {
  const Index l = bytes(1, 24);
  const bool causal = bytes.once_in(2);
  const std::string of_l = " " + std::to_string(l) + (causal ? " causal" : "");
  switch (bytes(0, 9)) {
    case 0:
      return leaf(fovea::Causal{}, "causal");
    case 1:
      return leaf(fovea::fixed_local(l), "local" + of_l);
    case 2:
      return leaf(fovea::BlockWindow{l, bytes(0, 2), bytes(0, 2)}, "block window" + of_l);
    case 3:
      return leaf(fovea::GlobalTokens::first(l, causal), "first" + of_l);
    case 4:
      return leaf(fovea::FixedSummary{{l, bytes(1, l), 0, causal}}, "summary" + of_l);
    case 5:
      return leaf(fovea::FixedRemainder{{l, bytes(1, l), 0, causal}}, "beyond" + of_l);
    case 6:
      return leaf(fovea::StridedKeys{l, causal}, "strided" + of_l);
    case 7:
      return leaf(fovea::DilatedWindow{bytes(0, 4), bytes(0, 4), l}, "dilated" + of_l);
    case 8:
      return drawn_blocks(bytes, keys);
    default: {
      const fovea::Window window{bytes(0, 40), bytes(0, 40)};
      return leaf(window,
                  "window " + std::to_string(window.left) + " " + std::to_string(window.right));
    }
  }
}

/// Two patterns combined; the first one, where fovea refuses to combine them.
inline DrawnPattern combined(Index how, const DrawnPattern& a, const DrawnPattern& b) {
  const auto made = [&](const char* name, auto&& combine, auto reference_mask) {
    try {
      return DrawnPattern{ErasedPattern::of(combine(a.pattern, b.pattern)),
                          [x = a.reference_mask, y = b.reference_mask, reference_mask](
                              Index i, Index j) { return reference_mask(x(i, j), y(i, j)); },
                          std::string(name) + "(" + a.made + ", " + b.made + ")"};
    } catch (const std::invalid_argument&) {
      return a;
    }
  };
  const auto pass = [](auto f) { return f; };
  switch (how) {
    case 0:
      return made(
          "unite", [](const auto& x, const auto& y) { return fovea::unite(x, y); },
          pass([](bool x, bool y) { return x || y; }));
    case 1:
      return made(
          "intersect", [](const auto& x, const auto& y) { return fovea::intersect(x, y); },
          pass([](bool x, bool y) { return x && y; }));
    default:
      return made(
          "subtract", [](const auto& x, const auto& y) { return fovea::subtract(x, y); },
          pass([](bool x, bool y) { return x && !y; }));
  }
}

/// A tree of at most `depth` levels of combinations.
inline DrawnPattern drawn_tree(Bytes& bytes, Index keys, int depth) {
  if (depth == 0 || bytes.once_in(4)) return drawn_leaf(bytes, keys);
  const Index how = bytes(0, 2);
  const DrawnPattern first = drawn_tree(bytes, keys, depth - 1);
  return combined(how, first, drawn_tree(bytes, keys, depth - 1));
}

inline void try_pattern(std::span<const std::uint8_t> data) {
  Bytes bytes(data);
  SequenceShape shape;
  shape.queries = bytes(0, 90);
  shape.keys = bytes.once_in(2) ? shape.queries : bytes(0, 90);
  shape.first_position = bytes.once_in(4) ? 0 : shape.keys - shape.queries;
  const DrawnPattern drawn = drawn_tree(bytes, shape.keys, 3);
  SCOPED_TRACE(drawn.made + ", " + std::to_string(shape.queries) + " queries, " +
               std::to_string(shape.keys) + " keys");
  expect_mask(drawn.pattern, shape, "tree", drawn.reference_mask);
  if (!bytes.once_in(2)) return;
  const DrawnPattern second = drawn_tree(bytes, shape.keys, 1);
  SCOPED_TRACE("in stages with " + second.made);
  try {
    expect_passes(fovea::in_passes(drawn.pattern, second.pattern), shape);
  } catch (const std::invalid_argument&) {
    // StridedRanges that do not cut one another.
  }
}

}  // namespace fovea_test
