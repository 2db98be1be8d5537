// SPDX-License-Identifier: MIT
/// \file
/// Fixed attention of the Sparse Transformer (Child et al. 2019; MATHS.md, section 3): A1 is the
/// query's own block, and A2 are the summary keys of every block.
#pragma once

#include "fovea/patterns/block_window.hpp"
#include "fovea/patterns/strided.hpp"

FOVEA_NAMESPACE_BEGIN

/// The sizes of fixed attention. Blocks have l positions, the stride, and c keys of each block are
/// its summary: the last c keys by default. Heads may have different ones: sub-block s is the
/// columns [l - (s + 1) c, l - s c) of a block.
struct FixedShape {
  Index stride = 1;     ///< l, the positions in a block, at least 1
  Index summary = 1;    ///< c, the summary keys of a block, in [1, l]
  Index sub_block = 0;  ///< s, selects the summary's c columns, in [0, floor(l / c))
  bool causal = true;   ///< whether a position sees keys up to itself only

  /// A block's summary columns.
  constexpr Range columns() const {
    return {stride - (sub_block + 1) * summary, stride - sub_block * summary};
  }
  /// The summary keys of all blocks, as the only keys that queries see.
  constexpr KeyColumns key_columns() const { return {stride, columns()}; }
};

/// The pattern A1: the keys of the query's own block.
constexpr BlockWindow fixed_local(Index stride, bool causal = true) {
  return {stride, 0, 0, causal};
}

/// The pattern A2: the summary keys of every block, the query's own included, and, if causal,
/// j <= i. There is one interval for each column of the summary.
struct FixedSummary {
  /// The sizes of fixed attention.
  FixedShape shape;
  /// Only the first this many columns of the summary have an interval; by default all.
  Index most_columns = kUnboundedKeys;

  /// The same pattern without intervals for columns whose first key would be beyond the sequence.
  constexpr FixedSummary up_to(Index keys) const {
    return {shape, (std::max)(keys - shape.columns().begin, Index{1})};
  }

  /// Whether the query at position i sees key j.
  constexpr bool allows(Index i, Index j) const {
    return shape.columns().holds(floor_mod(j, shape.stride)) && (!shape.causal || j <= i);
  }

  /// The only keys that queries see.
  constexpr KeyColumns key_columns() const { return shape.key_columns(); }
  /// The number of intervals: at most one for each column.
  constexpr Index interval_count() const { return (std::min)(shape.summary, most_columns); }
  /// The keys of an interval: one column of every block.
  constexpr StridedRange strided_range(Index interval) const {
    return {shape.columns().begin + interval, shape.stride};
  }
  /// The stride: the distance between an interval's keys.
  constexpr Index key_step() const { return shape.stride; }

  /// Writes all keys to each interval.
  void keys_of(Index, std::span<Range> intervals) const {
    std::ranges::fill(intervals.first(static_cast<std::size_t>(interval_count())), kEverywhere);
  }
  /// Whether the intervals still need the causal cut, to keys up to the query.
  constexpr bool causal_cut() const { return shape.causal; }
  /// All positions have the same intervals.
  constexpr Index same_until(Index) const { return kUnboundedKeys; }
  /// A range that contains every position that sees one of the keys: all, or, if causal, those from
  /// the first key on.
  constexpr Range seen_from(const Range& keys) const {
    return {shape.causal ? keys.begin : -kFarPosition, kFarPosition};
  }

  /// The plan for one sequence.
  IntervalPlan<FixedSummary> plan(const SequenceShape& s) const { return {*this, s}; }
};

/// A2 without the keys that A1 shows: the summary keys of the blocks before the query's own and, if
/// not causal, of the blocks after it.
struct FixedRemainder {
  /// The sizes of fixed attention.
  FixedShape shape;
  /// As in FixedSummary.
  Index most_columns = kUnboundedKeys;

  /// The same pattern without intervals for columns whose first key would be beyond the sequence.
  constexpr FixedRemainder up_to(Index keys) const {
    return {shape, summary().up_to(keys).most_columns};
  }

  /// Whether the query at position i sees key j.
  constexpr bool allows(Index i, Index j) const {
    return summary().allows(i, j) && !fixed_local(shape.stride, shape.causal).allows(i, j);
  }

  /// The only keys that queries see.
  constexpr KeyColumns key_columns() const { return shape.key_columns(); }
  /// The number of intervals: one for each column and, if not causal, another for later blocks.
  constexpr Index interval_count() const {
    return (shape.causal ? 1 : 2) * summary().interval_count();
  }
  /// The keys of an interval: one column of every block.
  constexpr StridedRange strided_range(Index interval) const {
    return summary().strided_range(interval % summary().interval_count());
  }
  /// The stride: the distance between an interval's keys.
  constexpr Index key_step() const { return shape.stride; }

  /// Writes the blocks before i's own and, if not causal, those after it.
  void keys_of(Index i, std::span<Range> intervals) const {
    const Index own = floor_div(i, shape.stride);
    const auto c = static_cast<std::size_t>(summary().interval_count());
    std::ranges::fill(intervals.first(c), Range{-kFarPosition, own});
    if (!shape.causal) std::ranges::fill(intervals.subspan(c, c), Range{own + 1, kEverywhere.end});
  }
  /// The end of i's block: up to there positions have the same intervals.
  constexpr Index same_until(Index i) const { return fixed_local(shape.stride).same_until(i); }
  /// From each block to the next the intervals move by one key.
  constexpr Index repeats_until(Index i) const {
    return floor_mod(i, shape.stride) == 0 ? kUnboundedKeys : i;
  }
  /// A range that contains every position that sees one of the keys: all, or, if causal, those from
  /// the first key on.
  constexpr Range seen_from(const Range& keys) const { return summary().seen_from(keys); }

  /// The plan for one sequence.
  IntervalPlan<FixedRemainder> plan(const SequenceShape& s) const { return {*this, s}; }

 private:
  constexpr FixedSummary summary() const { return {shape, most_columns}; }
};

/// Checks the sizes of fixed attention.
/// \throws std::invalid_argument as check_strided, if c is not in [1, stride], or if sub-block s
/// reaches beyond the block
inline void check_fixed(const char* op, const FixedShape& shape) {
  const auto [stride, summary, sub_block, causal] = shape;
  check_strided(op, stride);
  if (summary < 1 || summary > stride) {
    refuse(op, "summary", std::to_string(summary),
           range_text<Index>(1, stride) + " keys: a block has stride keys");
  }
  if (sub_block < 0 || sub_block >= stride / summary) {
    refuse(op, "sub-block", std::to_string(sub_block),
           range_text<Index>(0, stride / summary - 1) + ": a block of " + std::to_string(stride) +
               " keys has " + std::to_string(stride / summary));
  }
}

static_assert(Pattern<FixedSummary> && Pattern<FixedRemainder>);

FOVEA_NAMESPACE_END
