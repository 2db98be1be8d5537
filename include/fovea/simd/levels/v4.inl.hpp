// SPDX-License-Identifier: MIT
/// \file
/// x86-64-v4: AVX-512 F, BW, DQ, VL and CD, 32 registers of 64 bytes. See simd/each_level.inl.hpp.

#define FOVEA_LEVEL 4
#define FOVEA_LEVEL_NAME v4
#define FOVEA_LEVEL_VEC_BYTES 64
#define FOVEA_LEVEL_ARCH "fovea/simd/arch/avx512.inl.hpp"
#define FOVEA_LEVEL_OPERATIONS Avx512
#define FOVEA_LEVEL_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,bmi,bmi2"
#define FOVEA_LEVEL_IS_ON_MACHINE                                              \
  (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&  \
   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && \
   __builtin_cpu_supports("avx512cd"))
#include FOVEA_EACH_LEVEL
#include "fovea/simd/levels/end.inl.hpp"
