// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the random-edge kernel. Its body is random_points.inl.hpp, compiled once per
/// instruction-set level; table.hpp selects the level.
#pragma once

#include <cstdint>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// Writes points[(j - first) row + m] = floor(length u) for the keys j and the slots m, where u is
/// `uniform_draw<double>(seed, batch, head, j, m)`. (Rounded up, length u may equal the length.)
struct RandomPointsArgs {
  std::uint64_t seed = 0;   ///< seed of the draws
  Index batch = 0;          ///< number of the sequence, for the draws
  Index head = 0;           ///< number of the head, for the draws
  Index first = 0;          ///< the first key
  Index keys = 0;           ///< number of keys
  Index slots_per_key = 0;  ///< M, the slots of a key
  Index length = 0;         ///< the upper bound of the points
  Index* points = nullptr;  ///< written
  Index row = 0;            ///< stride of keys in `points`
};

FOVEA_NAMESPACE_END
