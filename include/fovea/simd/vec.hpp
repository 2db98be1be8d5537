// SPDX-License-Identifier: MIT
/// \file
/// What any kernel body stands on, compiled once per instruction-set level: each level's `Vec`, its
/// math, and the register block.
#pragma once

#include "fovea/simd/prelude.hpp"

#define FOVEA_LEVEL_BODY "fovea/simd/bodies.inl.hpp"
#include "fovea/simd/levels/regions.inl.hpp"
