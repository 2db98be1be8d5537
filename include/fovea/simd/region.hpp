// SPDX-License-Identifier: MIT
/// \file
/// Regions: between BEGIN and END every function is compiled for one instruction-set level,
/// whatever the flags of the translation unit.
///
/// Inside a region stand raw pointers, builtins and our own always-inline functions only. A
/// function of Eigen or std that is instantiated there would be linked into baseline callers.
#pragma once

#include "fovea/core/config.hpp"

// Which levels this translation unit compiles: its own, and those above it.
#if defined(__x86_64__) && !defined(FOVEA_NATIVE_ONLY)
#define FOVEA_COMPILE_V3 (FOVEA_UNIT_LEVEL < 3)
#define FOVEA_COMPILE_V4 (FOVEA_UNIT_LEVEL < 4)
#else
#define FOVEA_COMPILE_V3 0
#define FOVEA_COMPILE_V4 0
#endif

// FOVEA_AT_LEVEL(level, name): what `name` is in the namespace of an IsaLevel; of the unit's own
// level where that one is not compiled.
#if FOVEA_UNIT_LEVEL == 4 || FOVEA_COMPILE_V4
#define FOVEA_V4_NAMESPACE ::fovea::v4
#elif FOVEA_UNIT_LEVEL == 3
#define FOVEA_V4_NAMESPACE ::fovea::v3
#else
#define FOVEA_V4_NAMESPACE ::fovea::baseline
#endif
#if FOVEA_UNIT_LEVEL == 4
#define FOVEA_V3_NAMESPACE ::fovea::v4
#define FOVEA_BASELINE_NAMESPACE ::fovea::v4
#elif FOVEA_UNIT_LEVEL == 3
#define FOVEA_V3_NAMESPACE ::fovea::v3
#define FOVEA_BASELINE_NAMESPACE ::fovea::v3
#elif FOVEA_COMPILE_V3
#define FOVEA_V3_NAMESPACE ::fovea::v3
#define FOVEA_BASELINE_NAMESPACE ::fovea::baseline
#else
#define FOVEA_V3_NAMESPACE ::fovea::baseline
#define FOVEA_BASELINE_NAMESPACE ::fovea::baseline
#endif
#define FOVEA_AT_LEVEL(level, ...)                                      \
  ((level) == ::fovea::IsaLevel::v4   ? FOVEA_V4_NAMESPACE::__VA_ARGS__ \
   : (level) == ::fovea::IsaLevel::v3 ? FOVEA_V3_NAMESPACE::__VA_ARGS__ \
                                      : FOVEA_BASELINE_NAMESPACE::__VA_ARGS__)

#define FOVEA_PRAGMA(text) _Pragma(#text)

#if defined(__clang__)
#define FOVEA_REGION_BEGIN_V3                                                          \
  FOVEA_PRAGMA(clang attribute push(__attribute__((target("avx2,fma,f16c,bmi,bmi2"))), \
                                    apply_to = function))
#define FOVEA_REGION_BEGIN_V4                                                                   \
  FOVEA_PRAGMA(                                                                                 \
      clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd," \
                                                 "avx2,fma,bmi,bmi2"))),                        \
                           apply_to = function))
#define FOVEA_REGION_END FOVEA_PRAGMA(clang attribute pop)
#else
#define FOVEA_REGION_BEGIN_V3    \
  FOVEA_PRAGMA(GCC push_options) \
  FOVEA_PRAGMA(GCC target("avx2,fma,f16c,bmi,bmi2"))
#define FOVEA_REGION_BEGIN_V4    \
  FOVEA_PRAGMA(GCC push_options) \
  FOVEA_PRAGMA(GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,bmi,bmi2"))
#define FOVEA_REGION_END FOVEA_PRAGMA(GCC pop_options)
#endif

// The baseline of a unit that compiles the levels above it, too: short code.
#if defined(__clang__) || !FOVEA_COMPILE_V3
#define FOVEA_REGION_BEGIN_BASELINE
#define FOVEA_REGION_END_BASELINE
#else
#define FOVEA_REGION_BEGIN_BASELINE \
  FOVEA_PRAGMA(GCC push_options)    \
  FOVEA_PRAGMA(GCC optimize("Os"))
#define FOVEA_REGION_END_BASELINE FOVEA_PRAGMA(GCC pop_options)
#endif

// `FOVEA_UNROLL` before a loop whose trip count is a small constant: the accumulators of such a
// loop live in registers only if it is unrolled, at -O2 too. `FOVEA_UNROLL_BY(n)` before a long
// one.
#if defined(__clang__)
#define FOVEA_UNROLL FOVEA_PRAGMA(clang loop unroll(full))
#define FOVEA_UNROLL_BY(n) FOVEA_PRAGMA(clang loop unroll_count(n))
#else
#define FOVEA_UNROLL FOVEA_PRAGMA(GCC unroll 32)
#define FOVEA_UNROLL_BY(n) FOVEA_PRAGMA(GCC unroll n)
#endif
