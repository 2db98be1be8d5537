// SPDX-License-Identifier: MIT
/// \file
/// The patterns of one interval of neighbours per query: dense, causal, window (MATHS.md, section
/// 2), and the window with gaps.
#pragma once

#include <string>
#include <utility>

#include "fovea/core/error.hpp"
#include "fovea/patterns/slot_plan.hpp"

FOVEA_NAMESPACE_BEGIN

/// A window around the query: `left` keys before it, itself, `right` keys after it.
struct Window {
  /// A side without an end.
  static constexpr Index kUnbounded = kUnboundedKeys;

  Index left = kUnbounded;
  Index right = kUnbounded;

  constexpr bool allows(Index i, Index j) const { return keys_of(i).holds(j); }

  constexpr Range keys_of(Index i) const {
    const Index before = left < kFarPosition ? i - left : -kFarPosition;
    const Index after = right < kFarPosition ? i + right + 1 : kFarPosition;
    return {before, after};
  }

  constexpr Index most_keys() const {
    const auto [first, last] = keys_of(0);
    return last - first;
  }

  constexpr Reach reach() const {
    return {(std::min)(left, kFarPosition), (std::min)(right, kFarPosition)};
  }

  constexpr Index same_until(Index i) const {
    return left < kFarPosition || right < kFarPosition ? i + 1 : kFarPosition;
  }
  constexpr Index linear_until(Index) const { return kFarPosition; }

  constexpr Range seen_from(const Range& keys) const {
    return {Window{right, left}.keys_of(keys.begin).begin,
            Window{right, left}.keys_of(keys.end - 1).end};
  }

  SlotPlan<Window> plan(const SequenceShape& shape) const { return {*this, shape}; }
};

/// Every query sees every key.
struct Dense : Window {};

/// Every query sees the keys up to its own position.
struct Causal : Window {
  constexpr Causal() : Window{kUnbounded, 0} {}
};

/// A window that keeps one key of `dilation`: i + dilation * m for m in [-left, right].
struct DilatedWindow {
  Index left = 0;
  Index right = 0;
  Index dilation = 1;

  constexpr bool allows(Index i, Index j) const {
    if ((i - j) % dilation != 0) return false;
    const Index m = (j - i) / dilation;
    return -left <= m && m <= right;
  }

  constexpr Index row_step() const { return dilation; }
  constexpr Range keys_of(Index i) const { return window().keys_of(floor_div(i, dilation)); }
  constexpr Index most_keys() const { return window().most_keys(); }
  constexpr Index linear_until(Index) const { return kFarPosition; }

  constexpr Reach reach() const {
    const auto [before, after] = window().reach();
    const Index most = kFarPosition / dilation;
    return {(std::min)(before, most) * dilation, (std::min)(after, most) * dilation};
  }

  constexpr Range seen_from(const Range& keys) const {
    const auto [first, last] = window().seen_from(
        {floor_div(keys.begin, dilation), floor_div(keys.end - 1, dilation) + 1});
    constexpr Index far = kFarPosition;
    return {first <= -far / dilation ? -far : first * dilation,
            last >= far / dilation ? far : last * dilation};
  }

  SlotPlan<DilatedWindow> plan(const SequenceShape& shape) const { return {*this, shape}; }

 private:
  constexpr Window window() const { return {left, right}; }
};

/// \throws std::invalid_argument a side is negative
inline void check_window(const char* op, const Window& window) {
  for (const auto& [side, keys] :
       {std::pair{"left", window.left}, std::pair{"right", window.right}}) {
    if (keys < 0) refuse(op, side, std::to_string(keys), "at least 0 keys");
  }
}

/// \throws std::invalid_argument a side is negative or the dilation is not positive
inline void check_dilated_window(const char* op, const DilatedWindow& window) {
  check_window(op, {window.left, window.right});
  if (window.dilation < 1) refuse(op, "dilation", std::to_string(window.dilation), "at least 1");
}

static_assert(Pattern<Window> && Pattern<Dense> && Pattern<Causal> && Pattern<DilatedWindow>);
static_assert(PartitionedPlan<SlotPlan<Window>>);

FOVEA_NAMESPACE_END
