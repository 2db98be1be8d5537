// SPDX-License-Identifier: MIT
/// \file
/// The common dependencies of kernel bodies, compiled once per instruction-set level: `Vec`, its
/// math, and the register block.
#pragma once

#include "fovea/simd/prelude.hpp"

#define FOVEA_LEVEL_BODY "fovea/simd/bodies.inl.hpp"
#define FOVEA_LEVEL_BODY_HAS_BF16
#include "fovea/simd/levels/regions.inl.hpp"
