// SPDX-License-Identifier: MIT
/// \file
/// Compiles the file that FOVEA_LEVEL_BODY names once per instruction-set level. No include guard.

// GCC warns of a sign change in every array bound that depends on a template's int; Clang checks
// these files with the same warning. GCC also warns that an array written in a loop's first
// iteration and read in the second may be uninitialised.
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
