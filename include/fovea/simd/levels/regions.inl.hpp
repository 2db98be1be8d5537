// SPDX-License-Identifier: MIT
/// \file
/// Compiles the file that FOVEA_LEVEL_BODY names once per instruction-set level; for v4_bf16, too,
/// if FOVEA_LEVEL_BODY_HAS_BF16 is defined. No include guard.

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
#if defined(FOVEA_LEVEL_BODY_HAS_BF16)
#define FOVEA_EACH_LEVEL "fovea/simd/levels/region.inl.hpp"
#include "fovea/simd/levels/v4_bf16.inl.hpp"
#undef FOVEA_LEVEL_BODY_HAS_BF16
#endif
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#undef FOVEA_LEVEL_BODY
