// SPDX-License-Identifier: MIT
/// \file
/// Laws of visible pairs that several operators share.
#pragma once

#include "support/oracle/law.hpp"

namespace fovea_test {

/// Every pair.
inline bool all_pairs(const Pair& /*pair*/) { return true; }

/// A window around the position.
inline Law band(Index left, Index right) {
  return [=](const Pair& p) { return -left <= p.j - p.i() && p.j - p.i() <= right; };
}

/// A window around the row number: top-left alignment.
inline Law top_left_band(Index left, Index right) {
  return [=](const Pair& p) { return -left <= p.j - p.row && p.j - p.row <= right; };
}

inline constexpr Index kAllKeys = 1 << 30;

}  // namespace fovea_test
