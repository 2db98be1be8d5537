// SPDX-License-Identifier: MIT
/// \file
/// The integers that say which keys a block of queries sees: what patterns make and kernels read.
#pragma once

#include <limits>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// Most query rows that one block holds.
inline constexpr Index kMaxBlockRows = 512;

/// Rows that see at most so many keys, in one run, are computed pair by pair, not by tiles: beyond
/// it the tiles' invisible pairs cost less than the sums across lanes.
inline constexpr Index kBandKeys = 32;

/// No bound on the keys of a row.
inline constexpr Index kUnboundedKeys = (std::numeric_limits<Index>::max)();

/// The keys `first + step * t`, t in [0, count).
/// Without bounds every query of the block sees all of them; with bounds, row r of the block sees
/// t in [lower[r], upper[r]), both within [0, count]; an empty interval is lower[r] >= upper[r].
struct KeyRun {
  Index first = 0;
  Index step = 1;
  Index count = 0;
  const Index* lower = nullptr;  // [rows of the block], or none
  const Index* upper = nullptr;  // [rows of the block], or none
};

/// The query rows `first + step * r`, r in [0, count), handled together, and the keys they see.
/// No key appears in two runs of a block.
struct QueryBlock {
  Index first = 0;
  Index step = 1;
  Index count = 0;
  const KeyRun* runs = nullptr;
  Index run_count = 0;
  /// No row of the pattern sees more keys, in any sequence; at most kBandKeys only with one run.
  Index most_keys = kUnboundedKeys;
};

FOVEA_NAMESPACE_END
