// SPDX-License-Identifier: MIT
/// \file
/// A window of whole blocks: a query sees the blocks of keys around its own (BigBird, Zaheer et al.
/// 2020, section 2; with no neighbours, the local part of fixed attention).
#pragma once

#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// Position i sees key j if floor(j / block) - floor(i / block) is in [-left, right], causal: and
/// j <= i.
struct BlockWindow {
  Index block = 1;
  Index left = 0;   // blocks before the query's own
  Index right = 0;  // blocks after it
  bool causal = false;

  constexpr bool allows(Index i, Index j) const {
    const Index apart = floor_div(j, block) - floor_div(i, block);
    return -left <= apart && apart <= right && (!causal || j <= i);
  }

  constexpr Range keys_of(Index i) const { return whole_blocks(i, i, left, right); }
  constexpr Reach reach() const {
    const Index most = (std::max)(kFarPosition / block, Index{1}) - 1;
    return {((std::min)(left, most) + 1) * block - 1,
            causal ? 0 : ((std::min)(right, most) + 1) * block - 1};
  }
  constexpr bool causal_cut() const { return causal; }
  constexpr Index same_until(Index i) const { return whole_blocks(i, i, 0, 0).end; }
  constexpr Index row_block() const { return block; }

  constexpr Range seen_from(const Range& keys) const {
    const auto [first, last] = whole_blocks(keys.begin, keys.end - 1, right, left);
    return {causal ? keys.begin : first, last};
  }

  SlotPlan<BlockWindow> plan(const SequenceShape& shape) const { return {*this, shape}; }

 private:
  /// From so many blocks before that of i to so many after that of j.
  constexpr Range whole_blocks(Index i, Index j, Index before, Index after) const {
    const Range blocks = {floor_div(i, block) - (std::min)(before, kFarPosition),
                          floor_div(j, block) + (std::min)(after, kFarPosition) + 1};
    const Index most = kFarPosition / block;
    return {blocks.begin <= -most ? -kFarPosition : blocks.begin * block,
            blocks.end >= most ? kFarPosition : blocks.end * block};
  }
};

/// \throws std::invalid_argument block < 1, or a side is negative
inline void check_block_window(const char* op, const BlockWindow& window) {
  if (window.block < 1) refuse(op, "block", std::to_string(window.block), "at least 1");
  for (const auto& [side, blocks] :
       {std::pair{"left", window.left}, std::pair{"right", window.right}}) {
    if (blocks < 0) refuse(op, side, std::to_string(blocks), "at least 0 blocks");
  }
}

static_assert(Pattern<BlockWindow>);

FOVEA_NAMESPACE_END
