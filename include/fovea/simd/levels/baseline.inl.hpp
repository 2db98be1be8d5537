// SPDX-License-Identifier: MIT
/// \file
/// The lowest level: what the translation unit's flags allow. SSE2 on x86-64, NEON on AArch64,
/// elsewhere the compiler's plain vectors. See simd/each_level.inl.hpp.

#define FOVEA_LEVEL 1
#define FOVEA_LEVEL_NAME baseline
#define FOVEA_LEVEL_VEC_BYTES 16
#if defined(__aarch64__)
#define FOVEA_LEVEL_ARCH "fovea/simd/arch/neon.inl.hpp"
#define FOVEA_LEVEL_OPERATIONS Neon
#elif defined(__SSE2__)
#define FOVEA_LEVEL_ARCH "fovea/simd/arch/sse2.inl.hpp"
#define FOVEA_LEVEL_OPERATIONS Sse2
#else
#define FOVEA_LEVEL_ARCH "fovea/simd/arch/portable.inl.hpp"
#define FOVEA_LEVEL_OPERATIONS Portable
#endif
#define FOVEA_LEVEL_TARGET ""  // never above the flags of a unit
#define FOVEA_LEVEL_IS_ON_MACHINE true
#include FOVEA_EACH_LEVEL
#include "fovea/simd/levels/end.inl.hpp"
