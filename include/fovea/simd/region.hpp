// SPDX-License-Identifier: MIT
/// \file
/// Regions: between BEGIN and END every function is compiled for one instruction-set level,
/// whatever the flags of the translation unit.
///
/// Regions use only raw pointers, builtins and fovea's always-inline functions. A function of Eigen
/// or std instantiated there would be linked into baseline callers.
#pragma once

#include "fovea/core/config.hpp"

#include "fovea/simd/isa.hpp"

// For a level described by simd/each_level.inl.hpp: whether this unit compiles it in addition to
// its own, and whether it is the baseline of a unit that compiles others, and so compiled to short
// code.
#define FOVEA_COMPILES_LEVEL (FOVEA_COMPILES_LEVELS && FOVEA_LEVEL > FOVEA_UNIT_LEVEL)
#define FOVEA_LEVEL_IS_COMPACT (FOVEA_COMPILES_LEVELS && FOVEA_UNIT_LEVEL == 1 && FOVEA_LEVEL == 1)

// FOVEA_AT_LEVEL(level, name): `name` in the namespace of an IsaLevel; v4_bf16 is taken as v4.
#define FOVEA_IF_LEVEL(name_, level, ...) \
  (level) == ::fovea::IsaLevel::name_ ? ::fovea::name_::__VA_ARGS__:
#define FOVEA_AT_LEVEL(level, ...)                                    \
  (FOVEA_LEVELS(FOVEA_IF_LEVEL, ::fovea::detail::common_level(level), \
                __VA_ARGS__)::fovea::baseline::__VA_ARGS__)

#define FOVEA_PRAGMA(text) _Pragma(#text)

#if defined(__clang__)
#define FOVEA_REGION_BEGIN(features) \
  FOVEA_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define FOVEA_REGION_END FOVEA_PRAGMA(clang attribute pop)
#define FOVEA_REGION_BEGIN_COMPACT
#define FOVEA_REGION_END_COMPACT
#else
#define FOVEA_REGION_BEGIN(features) \
  FOVEA_PRAGMA(GCC push_options)     \
  FOVEA_PRAGMA(GCC target(features))
#define FOVEA_REGION_END FOVEA_PRAGMA(GCC pop_options)
#define FOVEA_REGION_BEGIN_COMPACT \
  FOVEA_PRAGMA(GCC push_options)   \
  FOVEA_PRAGMA(GCC optimize("Os"))
#define FOVEA_REGION_END_COMPACT FOVEA_PRAGMA(GCC pop_options)
#endif

// `FOVEA_UNROLL` before a loop whose trip count is a small constant: its accumulators stay in
// registers only if it is unrolled, even at -O2. `FOVEA_UNROLL_BY(n)` before a long one.
#if defined(__clang__)
#define FOVEA_UNROLL FOVEA_PRAGMA(clang loop unroll(full))
#define FOVEA_UNROLL_BY(n) FOVEA_PRAGMA(clang loop unroll_count(n))
#else
#define FOVEA_UNROLL FOVEA_PRAGMA(GCC unroll 32)
#define FOVEA_UNROLL_BY(n) FOVEA_PRAGMA(GCC unroll n)
#endif
