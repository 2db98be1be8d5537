// SPDX-License-Identifier: MIT
/// \file
/// Fixed attention of the Sparse Transformer (Child et al. 2019; MATHS.md, section 3): the query's
/// own block A1, and the summary keys A2 of every block.
#pragma once

#include "fovea/patterns/block_window.hpp"
#include "fovea/patterns/strided.hpp"

FOVEA_NAMESPACE_BEGIN

/// Stride l; the last c keys of each block of l are its summary. Heads may each have c keys of
/// their own: sub-block s are the columns [l - (s + 1) c, l - s c) of a block.
struct FixedShape {
  Index stride = 1;
  Index summary = 1;    // c
  Index sub_block = 0;  // s
  bool causal = true;

  /// The columns of a block that summarise it.
  constexpr Range columns() const {
    return {stride - (sub_block + 1) * summary, stride - sub_block * summary};
  }
  constexpr KeyColumns key_columns() const { return {stride, columns()}; }
};

/// A1: the keys of the query's own block.
constexpr BlockWindow fixed_local(Index stride, bool causal = true) {
  return {stride, 0, 0, causal};
}

/// A2: the summary keys of every block, the query's own included; causal: j <= i. One slot per
/// column.
struct FixedSummary {
  FixedShape shape;
  /// Of the summary, so many columns alone have a slot.
  Index most_columns = kUnboundedKeys;

  /// Without the columns whose first key would stand behind the sequence.
  constexpr FixedSummary up_to(Index keys) const {
    return {shape, (std::max)(keys - shape.columns().begin, Index{1})};
  }

  constexpr bool allows(Index i, Index j) const {
    return shape.columns().holds(floor_mod(j, shape.stride)) && (!shape.causal || j <= i);
  }

  constexpr KeyColumns key_columns() const { return shape.key_columns(); }
  constexpr Index slot_count() const { return (std::min)(shape.summary, most_columns); }
  constexpr Lattice lattice(Index slot) const {
    return {shape.columns().begin + slot, shape.stride};
  }
  constexpr Index key_step() const { return shape.stride; }

  void keys_of(Index, std::span<Range> slots) const {
    std::ranges::fill(slots.first(static_cast<std::size_t>(slot_count())), kEverywhere);
  }
  constexpr bool causal_cut() const { return shape.causal; }
  constexpr Index same_until(Index) const { return kFarPosition; }
  constexpr Range seen_from(const Range& keys) const {
    return {shape.causal ? keys.begin : -kFarPosition, kFarPosition};
  }

  SlotPlan<FixedSummary> plan(const SequenceShape& s) const { return {*this, s}; }
};

/// A2 without the keys that A1 shows: the summary keys of the blocks before the query's own;
/// bidirectional: and after it.
struct FixedBeyond {
  FixedShape shape;
  Index most_columns = kUnboundedKeys;  // as of FixedSummary

  constexpr FixedBeyond up_to(Index keys) const {
    return {shape, summary().up_to(keys).most_columns};
  }

  constexpr bool allows(Index i, Index j) const {
    return summary().allows(i, j) && !fixed_local(shape.stride, shape.causal).allows(i, j);
  }

  constexpr KeyColumns key_columns() const { return shape.key_columns(); }
  constexpr Index slot_count() const { return (shape.causal ? 1 : 2) * summary().slot_count(); }
  constexpr Lattice lattice(Index slot) const {
    return summary().lattice(slot % summary().slot_count());
  }
  constexpr Index key_step() const { return shape.stride; }

  void keys_of(Index i, std::span<Range> slots) const {
    const Index own = floor_div(i, shape.stride);
    const auto c = static_cast<std::size_t>(summary().slot_count());
    std::ranges::fill(slots.first(c), Range{-kFarPosition, own});
    if (!shape.causal) std::ranges::fill(slots.subspan(c, c), Range{own + 1, kFarPosition});
  }
  constexpr Index same_until(Index i) const { return fixed_local(shape.stride).same_until(i); }
  constexpr Range seen_from(const Range& keys) const { return summary().seen_from(keys); }

  SlotPlan<FixedBeyond> plan(const SequenceShape& s) const { return {*this, s}; }

 private:
  constexpr FixedSummary summary() const { return {shape, most_columns}; }
};

/// \throws std::invalid_argument as check_strided; c outside 1..stride, or sub-block s beyond the
/// block
inline void check_fixed(const char* op, const FixedShape& shape) {
  const auto [stride, summary, sub_block, causal] = shape;
  check_strided(op, stride);
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

static_assert(Pattern<FixedSummary> && Pattern<FixedBeyond>);

FOVEA_NAMESPACE_END
