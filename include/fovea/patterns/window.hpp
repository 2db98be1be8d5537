// SPDX-License-Identifier: MIT
/// \file
/// The patterns in which a query sees one interval of neighbours: dense, causal and window
/// (MATHS.md, section 2), and the window with gaps.
#pragma once

#include <string>
#include <utility>

#include "fovea/core/error.hpp"
#include "fovea/patterns/interval_plan.hpp"

FOVEA_NAMESPACE_BEGIN

/// A window around the query: `left` keys before it, the key at its own position, and `right` keys
/// after it.
struct Window {
  /// The value of an unbounded side.
  static constexpr Index kUnbounded = kUnboundedKeys;

  Index left = kUnbounded;   ///< number of visible keys before the query, at least 0
  Index right = kUnbounded;  ///< number of visible keys after the query, at least 0

  /// Whether the query at position i sees key j.
  constexpr bool allows(Index i, Index j) const { return keys_of(i).holds(j); }

  /// The interval of keys that position i sees, which may extend beyond the sequence.
  constexpr Range keys_of(Index i) const {
    const Index before = left < kFarPosition ? i - left : -kFarPosition;
    const Index after = right < kFarPosition ? i + right + 1 : kEverywhere.end;
    return {before, after};
  }

  /// The most keys that a row sees.
  constexpr Index most_keys() const {
    const auto [first, last] = keys_of(0);
    return last - first;
  }

  /// How far before and after itself a query sees keys.
  constexpr ReceptiveField receptive_field() const {
    return {(std::min)(left, kFarPosition), (std::min)(right, kFarPosition)};
  }

  /// Positions [i, same_until(i)) have the same interval: all of them if both sides are unbounded.
  constexpr Index same_until(Index i) const {
    return left < kFarPosition || right < kFarPosition ? i + 1 : kUnboundedKeys;
  }
  /// The intervals of all positions move alike.
  constexpr Index linear_until(Index) const { return kUnboundedKeys; }

  /// A range that contains every position that sees one of the keys.
  constexpr Range seen_from(const Range& keys) const {
    return {Window{right, left}.keys_of(keys.begin).begin,
            Window{right, left}.keys_of(keys.end - 1).end};
  }

  /// The plan for one sequence.
  IntervalPlan<Window> plan(const SequenceShape& shape) const { return {*this, shape}; }
};

/// The pattern in which every query sees every key.
struct Dense : Window {};

/// The pattern in which every query sees the keys up to its own position.
struct Causal : Window {
  constexpr Causal() : Window{kUnbounded, 0} {}
};

/// A window with gaps: position i sees i + dilation * m for m in [-left, right].
struct DilatedWindow {
  Index left = 0;      ///< number of visible keys before the query, at least 0
  Index right = 0;     ///< number of visible keys after the query, at least 0
  Index dilation = 1;  ///< the distance between visible keys, at least 1

  /// Whether the query at position i sees key j.
  constexpr bool allows(Index i, Index j) const {
    if ((i - j) % dilation != 0) return false;
    const Index m = (j - i) / dilation;
    return -left <= m && m <= right;
  }

  /// The dilation: rows of one residue are computed together.
  constexpr Index row_step() const { return dilation; }
  /// The interval that position i sees among the keys with its residue.
  constexpr Range keys_of(Index i) const { return window().keys_of(floor_div(i, dilation)); }
  /// The most keys that a row sees.
  constexpr Index most_keys() const { return window().most_keys(); }
  /// The intervals of all positions with one residue move alike.
  constexpr Index linear_until(Index) const { return kUnboundedKeys; }

  /// How far before and after itself a query sees keys.
  constexpr ReceptiveField receptive_field() const {
    const auto [before, after] = window().receptive_field();
    const Index most = kFarPosition / dilation;
    return {(std::min)(before, most) * dilation, (std::min)(after, most) * dilation};
  }

  /// A range that contains every position that sees one of the keys.
  constexpr Range seen_from(const Range& keys) const {
    const auto [first, last] = window().seen_from(
        {floor_div(keys.begin, dilation), floor_div(keys.end - 1, dilation) + 1});
    constexpr Index unbounded = kFarPosition;
    return {first <= -unbounded / dilation ? -unbounded : first * dilation,
            last >= unbounded / dilation ? unbounded : last * dilation};
  }

  /// The plan for one sequence.
  IntervalPlan<DilatedWindow> plan(const SequenceShape& shape) const { return {*this, shape}; }

 private:
  constexpr Window window() const { return {left, right}; }
};

/// Checks the sides of a Window.
/// \throws std::invalid_argument if a side is negative
inline void check_window(const char* op, const Window& window) {
  for (const auto& [side, keys] :
       {std::pair{"left", window.left}, std::pair{"right", window.right}}) {
    if (keys < 0) refuse(op, side, std::to_string(keys), "at least 0 keys");
  }
}

/// Checks the sides and the dilation of a DilatedWindow.
/// \throws std::invalid_argument if a side is negative or the dilation is below 1
inline void check_dilated_window(const char* op, const DilatedWindow& window) {
  check_window(op, {window.left, window.right});
  if (window.dilation < 1) refuse(op, "dilation", std::to_string(window.dilation), "at least 1");
}

static_assert(Pattern<Window> && Pattern<Dense> && Pattern<Causal> && Pattern<DilatedWindow>);
static_assert(PartitionedPlan<IntervalPlan<Window>>);

FOVEA_NAMESPACE_END
