// SPDX-License-Identifier: MIT
/// \file
/// Scratch rows are padded to whole vectors of any level, and begin at a cache line.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// Scratch rows are padded to multiples of this: the floats of the widest register, and of a cache
/// line. It is the same at every level, so that all levels need the same memory.
inline constexpr Index kPadding = 16;

/// Rounds a size n up to a multiple. \pre n >= 0, multiple > 0
constexpr Index padded_size(Index n, Index multiple = kPadding) {
  return (n + multiple - 1) / multiple * multiple;
}

FOVEA_NAMESPACE_END
