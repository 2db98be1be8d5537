// SPDX-License-Identifier: MIT
/// \file
/// A window of whole blocks: a query sees the key blocks around its own block (BigBird, Zaheer et
/// al. 2020, section 2). Without neighbours it is the local part of fixed attention.
#pragma once

#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// Position i sees key j if floor(j / block) - floor(i / block) is in [-left, right] and, if
/// causal, j <= i.
struct BlockWindow {
  Index block = 1;      ///< positions in a block, at least 1
  Index left = 0;       ///< visible key blocks before the query's own
  Index right = 0;      ///< visible key blocks after the query's own
  bool causal = false;  ///< whether a position sees keys up to itself only

  /// Whether the query at position i sees key j.
  constexpr bool allows(Index i, Index j) const {
    const Index apart = floor_div(j, block) - floor_div(i, block);
    return -left <= apart && apart <= right && (!causal || j <= i);
  }

  /// The interval of keys that position i sees, without the causal cut.
  constexpr Range keys_of(Index i) const { return whole_blocks(i, i, left, right); }
  /// How far before and after itself a position can see keys.
  constexpr ReceptiveField receptive_field() const {
    const Index most = (std::max)(kFarPosition / block, Index{1}) - 1;
    return {((std::min)(left, most) + 1) * block - 1,
            causal ? 0 : ((std::min)(right, most) + 1) * block - 1};
  }
  /// Whether the interval still needs the causal cut, to keys up to the query.
  constexpr bool causal_cut() const { return causal; }
  /// The end of i's block: up to there positions have the same interval.
  constexpr Index same_until(Index i) const { return whole_blocks(i, i, 0, 0).end; }
  /// The positions in a block: at multiples of it the interval changes.
  constexpr Index row_block() const { return block; }

  /// A range that contains every position that sees one of the keys.
  constexpr Range seen_from(const Range& keys) const {
    const auto [first, last] = whole_blocks(keys.begin, keys.end - 1, right, left);
    return {causal ? keys.begin : first, last};
  }

  /// The plan for one sequence.
  IntervalPlan<BlockWindow> plan(const SequenceShape& shape) const { return {*this, shape}; }

 private:
  /// The positions from `before` blocks before the block of i to the end of the `after`-th block
  /// after that of j.
  constexpr Range whole_blocks(Index i, Index j, Index before, Index after) const {
    const Range blocks = {floor_div(i, block) - (std::min)(before, kFarPosition),
                          floor_div(j, block) + (std::min)(after, kFarPosition) + 1};
    const Index most = 3 * kFarPosition / block;  // positions may be as far as 2^62
    return {before >= kFarPosition || blocks.begin < -most ? -kFarPosition : blocks.begin * block,
            after >= kFarPosition || blocks.end > most ? kEverywhere.end : blocks.end * block};
  }
};

/// Checks the sizes of a BlockWindow.
/// \throws std::invalid_argument if block < 1 or a side is negative
inline void check_block_window(const char* op, const BlockWindow& window) {
  if (window.block < 1) refuse(op, "block", std::to_string(window.block), "at least 1");
  for (const auto& [side, blocks] :
       {std::pair{"left", window.left}, std::pair{"right", window.right}}) {
    if (blocks < 0) refuse(op, side, std::to_string(blocks), "at least 0 blocks");
  }
}

static_assert(Pattern<BlockWindow>);

FOVEA_NAMESPACE_END
