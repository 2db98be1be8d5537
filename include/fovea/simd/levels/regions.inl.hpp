// SPDX-License-Identifier: MIT
/// \file
/// Compiles the file that FOVEA_LEVEL_BODY names once per instruction-set level. No include guard.

// GCC sees a change of sign in every array bound that depends on a template's int. Clang does not,
// and checks these files with the same warning.
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif
#define FOVEA_EACH_LEVEL "fovea/simd/levels/region.inl.hpp"
#include "fovea/simd/each_level.inl.hpp"
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#undef FOVEA_LEVEL_BODY
