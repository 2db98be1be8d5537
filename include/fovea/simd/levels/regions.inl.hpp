// SPDX-License-Identifier: MIT
/// \file
/// Compiles the file that FOVEA_LEVEL_BODY names once per instruction-set level. No include guard.

// GCC sees a change of sign in every array bound that depends on a template's int. Clang does not,
// and checks these files with the same warning. GCC also takes an array that the first turn of a
// loop writes and the second one reads for one that may be read before.
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#define FOVEA_EACH_LEVEL "fovea/simd/levels/region.inl.hpp"
#include "fovea/simd/each_level.inl.hpp"
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#undef FOVEA_LEVEL_BODY
