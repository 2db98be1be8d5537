// SPDX-License-Identifier: MIT
/// \file
/// The patterns of one interval per query: dense, causal, window (spec.md section 2).
#pragma once

#include <limits>
#include <string>
#include <utility>

#include "fovea/core/error.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// A window around the query: `left` keys before it, itself, `right` keys after it.
struct Window {
  /// A side without an end.
  static constexpr Index kUnbounded = kUnboundedKeys;

  Index left = kUnbounded;
  Index right = kUnbounded;

  constexpr bool allows(Index i, Index j) const {
    const auto [first, last] = keys_of(i);
    return first <= j && j < last;
  }

  /// The first key and one past the last key that position i sees, not cut to the sequence.
  constexpr std::pair<Index, Index> keys_of(Index i) const {
    constexpr Index far = std::numeric_limits<Index>::max() / 4;
    const Index before = left < far ? i - left : -far;
    const Index after = right < far ? i + right + 1 : far;
    return {before, after};
  }

  constexpr Index most_keys() const {
    const auto [first, last] = keys_of(0);
    return last - first;
  }

  IntervalPlan<Window> plan(const SequenceShape& shape) const { return {*this, shape}; }
};

/// Every query sees every key.
struct Dense : Window {};

/// Every query sees the keys up to its own position.
struct Causal : Window {
  constexpr Causal() : Window{kUnbounded, 0} {}
};

/// \throws std::invalid_argument a side is negative
inline void check_window(const char* op, const Window& window) {
  for (const auto& [side, keys] :
       {std::pair{"left", window.left}, std::pair{"right", window.right}}) {
    if (keys < 0) refuse(op, side, std::to_string(keys), "at least 0 keys");
  }
}

static_assert(Pattern<Window> && Pattern<Dense> && Pattern<Causal>);

FOVEA_NAMESPACE_END
