// SPDX-License-Identifier: MIT
/// \file
/// Rows of scratch are padded, so that vectors of any level fill them and each begins a cache line.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// The elements that rows of scratch are padded to: the floats of the widest register, and of a
/// cache line. It is the same at every level, so that all levels ask for the same memory.
inline constexpr Index kPadding = 16;

/// Rounds a size n up to a multiple. \pre n >= 0, multiple > 0
constexpr Index padded_size(Index n, Index multiple = kPadding) {
  return (n + multiple - 1) / multiple * multiple;
}

FOVEA_NAMESPACE_END
