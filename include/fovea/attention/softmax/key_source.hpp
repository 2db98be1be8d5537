// SPDX-License-Identifier: MIT
/// \file
/// Where a pattern's pass finds its keys.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// Where a pattern's pass finds its keys.
enum class KeySource : unsigned char {
  recent,   ///< among the last tokens, or among all tokens if all are kept
  summary,  ///< among certain columns of all tokens
};

FOVEA_NAMESPACE_END
