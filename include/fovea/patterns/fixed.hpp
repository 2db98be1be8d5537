// SPDX-License-Identifier: MIT
/// \file
/// Fixed attention of the Sparse Transformer (Child et al. 2019; spec.md section 3): the query's
/// own block A1, and the summary keys A2 of every block.
#pragma once

#include "fovea/patterns/block_window.hpp"

FOVEA_NAMESPACE_BEGIN

/// Stride l; the last c keys of each block of l are its summary. Heads may each have c keys of
/// their own: sub-block s are the columns [l - (s + 1) c, l - s c) of a block.
struct FixedShape {
  Index stride = 1;
  Index summary = 1;    // c
  Index sub_block = 0;  // s
  bool causal = true;

  /// The columns of a block that summarise it.
  constexpr Interval columns() const {
    return {stride - (sub_block + 1) * summary, stride - sub_block * summary};
  }
};

/// A1: the keys of the query's own block.
constexpr BlockWindow fixed_local(Index stride, bool causal = true) {
  return {stride, 0, 0, causal};
}

/// A2: the summary keys of every block, the query's own included; causal: j <= i. One slot per
/// column.
struct FixedSummary {
  FixedShape shape;

  constexpr bool allows(Index i, Index j) const {
    return shape.columns().holds(floor_mod(j, shape.stride)) && (!shape.causal || j <= i);
  }

  constexpr Index slot_count() const { return shape.summary; }
  constexpr Lattice lattice(Index slot) const {
    return {shape.columns().first + slot, shape.stride};
  }

  void keys_of(Index, std::span<Interval> slots) const {
    std::ranges::fill(slots.first(static_cast<std::size_t>(slot_count())), kEverywhere);
  }
  constexpr bool causal_cut() const { return shape.causal; }
  constexpr Index same_until(Index) const { return kFarPosition; }
  constexpr Interval seen_from(const Interval& keys) const {
    return {shape.causal ? keys.first : -kFarPosition, kFarPosition};
  }

  SlotPlan<FixedSummary> plan(const SequenceShape& s) const { return {*this, s}; }
};

/// A1 and A2 in one softmax: the own block, and the summary keys of the blocks before it;
/// bidirectional: and after it.
struct FixedMerged {
  FixedShape shape;

  constexpr bool allows(Index i, Index j) const {
    return fixed_local(shape.stride, shape.causal).allows(i, j) || FixedSummary{shape}.allows(i, j);
  }

  constexpr Index slot_count() const { return 1 + (shape.causal ? 1 : 2) * shape.summary; }
  constexpr Lattice lattice(Index slot) const {
    if (slot == 0) return {};
    return {shape.columns().first + (slot - 1) % shape.summary, shape.stride};
  }

  void keys_of(Index i, std::span<Interval> slots) const {
    const Index own = floor_div(i, shape.stride);
    slots[0] = fixed_local(shape.stride).keys_of(i);
    const std::size_t c = static_cast<std::size_t>(shape.summary);
    std::ranges::fill(slots.subspan(1, c), Interval{-kFarPosition, own});
    if (!shape.causal) {
      std::ranges::fill(slots.subspan(1 + c, c), Interval{own + 1, kFarPosition});
    }
  }

  constexpr bool causal_cut() const { return shape.causal; }
  constexpr Index same_until(Index i) const { return fixed_local(shape.stride).same_until(i); }
  constexpr Interval seen_from(const Interval& keys) const {
    return {shape.causal ? keys.first : -kFarPosition, kFarPosition};
  }

  SlotPlan<FixedMerged> plan(const SequenceShape& s) const { return {*this, s}; }
};

/// \throws std::invalid_argument stride < 1, c outside 1..stride, or sub-block s beyond the block
inline void check_fixed(const char* op, const FixedShape& shape) {
  const auto [stride, summary, sub_block, causal] = shape;
  if (stride < 1) refuse(op, "stride", std::to_string(stride), "at least 1");
  if (summary < 1 || summary > stride) {
    refuse(op, "summary", std::to_string(summary),
           "1 to " + std::to_string(stride) + " keys, the stride");
  }
  if (sub_block < 0 || sub_block >= stride / summary) {
    refuse(op, "sub-block", std::to_string(sub_block),
           "0 to " + std::to_string(stride / summary - 1) + ": a block of " +
               std::to_string(stride) + " keys holds " + std::to_string(stride / summary));
  }
}

static_assert(Pattern<FixedSummary> && Pattern<FixedMerged>);

FOVEA_NAMESPACE_END
