// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the normal-density kernel. Its body is normal_density.inl.hpp, compiled once per
/// instruction-set level; table.hpp selects the level.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// Replaces every x[n] by peak exp(-x[n]^2 / (2 variance)).
template <class T>
struct NormalDensityArgs {
  T* x = nullptr;              ///< [count] distances from the mean, overwritten
  Index count = 0;             ///< number of elements
  T minus_half_precision = 0;  ///< -1 / (2 variance)
  T peak = 1;                  ///< the value at distance 0
};

FOVEA_NAMESPACE_END
