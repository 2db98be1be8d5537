// SPDX-License-Identifier: MIT
/// \file
/// What the kernel of normal densities reads and writes. Its body is normal_density.inl.hpp.
#pragma once

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// x[n] = peak exp(-x[n]^2 / (2 variance)), in place.
template <class T>
struct NormalDensityArgs {
  T* x = nullptr;  // [count]
  Index count = 0;
  T minus_half_precision = 0;  // -1 / (2 variance)
  T peak = 1;
};

FOVEA_NAMESPACE_END
