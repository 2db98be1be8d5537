// SPDX-License-Identifier: MIT
/// \file
/// x86-64-v3: AVX2 with FMA and F16C, 16 registers of 32 bytes. See simd/each_level.inl.hpp.

#define FOVEA_LEVEL 3
#define FOVEA_LEVEL_NAME v3
#define FOVEA_LEVEL_VEC_BYTES 32
#define FOVEA_LEVEL_ARCH "fovea/simd/arch/avx2.inl.hpp"
#define FOVEA_LEVEL_OPERATIONS Avx2
#define FOVEA_LEVEL_TARGET "avx2,fma,f16c,bmi,bmi2"
#define FOVEA_LEVEL_IS_ON_MACHINE                                     \
  (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && \
   __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && machine_has_f16c())
#include FOVEA_EACH_LEVEL
#include "fovea/simd/levels/end.inl.hpp"
