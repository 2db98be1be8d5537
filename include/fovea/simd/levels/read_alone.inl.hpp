// SPDX-License-Identifier: MIT
/// \file
/// For tools that parse a single kernel body, such as editors: the macros of a level with plain
/// vectors. No program includes it.
#pragma once

#include "fovea/simd/prelude.hpp"

#undef FOVEA_LEVEL_IS_COMPACT
#define FOVEA_LEVEL_IS_COMPACT false
#define FOVEA_LEVEL_VEC_BYTES 16
#define FOVEA_LEVEL_ARCH "fovea/simd/arch/portable.inl.hpp"
#define FOVEA_LEVEL_OPERATIONS Portable

using namespace fovea;  // NOLINT(google-build-using-namespace)
