// SPDX-License-Identifier: MIT
/// \file
/// Laws of visible pairs that several operators share.
#pragma once

#include "fovea/patterns/pattern.hpp"
#include "support/oracle/reference_mask.hpp"

namespace fovea_test {

/// Every pair.
inline bool all_pairs(const Pair& /*pair*/) { return true; }

/// A window around the position.
inline ReferenceMask band(Index left, Index right,
                          fovea::CausalAlignment alignment = fovea::CausalAlignment::bottom_right) {
  return [=](const Pair& p) {
    const Index ahead = p.j - p.position(alignment);
    return -left <= ahead && ahead <= right;
  };
}

inline constexpr Index kAllKeys = 1 << 30;

}  // namespace fovea_test
