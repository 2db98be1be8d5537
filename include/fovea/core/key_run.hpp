// SPDX-License-Identifier: MIT
/// \file
/// The integers that define which keys a query block sees. Patterns produce them, kernels read
/// them.
#pragma once

#include <limits>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// The largest number of query rows in one block.
inline constexpr Index kMaxBlockRows = 512;

/// Rows that see at most this many keys, all in one run, are computed pair by pair. For longer rows
/// tiles are faster: the masked pairs in a tile cost less than the horizontal sums that single
/// pairs need.
inline constexpr Index kBandKeys = 32;

/// An unbounded number of keys per row.
inline constexpr Index kUnboundedKeys = (std::numeric_limits<Index>::max)();

/// A run of keys: `first + step * t` for t in [0, count). Without bounds, every query of the block
/// sees all of them. With bounds, row r of the block sees the keys whose t is in
/// [lower[r], upper[r]). Both bounds are in [0, count], and the row sees no key of the run if
/// lower[r] >= upper[r].
struct KeyRun {
  Index first = 0;               ///< The first key of the run.
  Index step = 1;                ///< The distance between neighbouring keys of the run.
  Index count = 0;               ///< The number of keys in the run.
  const Index* lower = nullptr;  ///< The lower bounds [rows of the block], or null without bounds.
  const Index* upper = nullptr;  ///< The upper bounds [rows of the block], or null without bounds.
};

/// A block of query rows `first + step * r`, r in [0, count), processed together, and the keys that
/// they see. No key appears in two runs of a block.
struct QueryBlock {
  Index first = 0;               ///< The first row of the block.
  Index step = 1;                ///< The distance between neighbouring rows of the block.
  Index count = 0;               ///< The number of rows, at most kMaxBlockRows.
  const KeyRun* runs = nullptr;  ///< The runs of keys [run_count].
  Index run_count = 0;           ///< The number of runs.
  /// No row of the pattern sees more keys than this, in any sequence. It is kBandKeys or less only
  /// if the pattern has a single run.
  Index most_keys = kUnboundedKeys;
};

FOVEA_NAMESPACE_END
