// SPDX-License-Identifier: MIT
/// \file
/// Strided attention of the Sparse Transformer (Child et al. 2019; MATHS.md, section 3): A1 is a
/// local window, and A2 the strided keys, with (i - j) mod l = 0.
#pragma once

#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// The keys of the window A1, for stride l.
enum class StridedExtent {
  formula,  ///< i - j <= l, as in the paper: l + 1 keys
  code,     ///< i - j < l, as in the authors' code: l keys
};

/// The pattern A1: the window before the query and, if not causal, the same after it.
constexpr Window strided_local(Index stride, bool causal = true,
                               StridedExtent extent = StridedExtent::formula) {
  const Index left = extent == StridedExtent::formula ? stride : stride - 1;
  return {left, causal ? 0 : left};
}

/// The pattern A2: every `stride`-th key, counted from the query. Within one residue the pattern is
/// dense, so nothing is gathered.
struct StridedKeys {
  Index stride = 1;    ///< l, at least 1
  bool causal = true;  ///< whether a position sees keys up to itself only

  /// Whether the query at position i sees key j.
  constexpr bool allows(Index i, Index j) const {
    return (!causal || j <= i) && (i - j) % stride == 0;
  }

  /// The stride: rows of one residue are computed together.
  constexpr Index row_step() const { return stride; }
  /// All keys with the position's residue.
  constexpr Range keys_of(Index) const { return kEverywhere; }
  /// All positions of a residue have the same interval.
  constexpr Index same_until(Index) const { return kUnboundedKeys; }
  /// Whether the interval still needs the causal cut, to keys up to the query.
  constexpr bool causal_cut() const { return causal; }
  /// A range that contains every position that sees one of the keys.
  constexpr Range seen_from(const Range& keys) const {
    return {causal ? keys.begin : -kFarPosition, kFarPosition};
  }

  /// The plan for one sequence.
  IntervalPlan<StridedKeys> plan(const SequenceShape& shape) const { return {*this, shape}; }
};

/// A2 without the keys that the window strided_local(stride, causal, extent) shows.
struct StridedRemainder {
  Index stride = 1;    ///< l, at least 1
  bool causal = true;  ///< whether a position sees keys up to itself only
  StridedExtent extent = StridedExtent::formula;  ///< the keys of the window

  /// Whether the query at position i sees key j.
  constexpr bool allows(Index i, Index j) const {
    return StridedKeys{stride, causal}.allows(i, j) &&
           !strided_local(stride, causal, extent).allows(i, j);
  }

  /// The stride: rows of one residue are computed together.
  constexpr Index row_step() const { return stride; }
  /// The number of intervals: the keys before the window and, if not causal, those after it.
  constexpr Index interval_count() const { return causal ? 1 : 2; }
  /// Writes the keys with i's residue before the window and, if not causal, those after it.
  void keys_of(Index i, std::span<Range> intervals) const {
    const Index own = floor_div(i, stride);
    const Index shown = extent == StridedExtent::formula ? 1 : 0;  // window keys on either side
    intervals[0] = {-kFarPosition, own - shown};
    if (!causal) intervals[1] = {own + shown + 1, kEverywhere.end};
  }
  /// The intervals of all positions with one residue move alike.
  constexpr Index linear_until(Index) const { return kUnboundedKeys; }
  /// A range that contains every position that sees one of the keys.
  constexpr Range seen_from(const Range& keys) const {
    return StridedKeys{stride, causal}.seen_from(keys);
  }

  /// The plan for one sequence.
  IntervalPlan<StridedRemainder> plan(const SequenceShape& shape) const { return {*this, shape}; }
};

/// Checks the stride.
/// \throws std::invalid_argument if stride < 1 or too large for positions
inline void check_strided(const char* op, Index stride) {
  if (stride < 1) refuse(op, "stride", std::to_string(stride), "at least 1");
  if (stride > kFarPosition) {
    refuse(op, "stride", std::to_string(stride), "at most " + std::to_string(kFarPosition));
  }
}

static_assert(Pattern<StridedKeys> && Pattern<StridedRemainder>);

FOVEA_NAMESPACE_END
