// SPDX-License-Identifier: MIT
/// \file
/// x86-64-v4 with AVX512-BF16, described by the macros of simd/each_level.inl.hpp, which does not
/// include it: simd/levels/regions.inl.hpp does, for the kernels that it changes.

#define FOVEA_LEVEL 5
#define FOVEA_LEVEL_NAME v4_bf16
#define FOVEA_LEVEL_VEC_BYTES 64
#define FOVEA_LEVEL_ARCH "fovea/simd/arch/avx512_bf16.inl.hpp"
#define FOVEA_LEVEL_OPERATIONS Avx512Bf16
#define FOVEA_LEVEL_TARGET \
  "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512bf16,avx2,fma,bmi,bmi2"
#define FOVEA_LEVEL_IS_ON_MACHINE __builtin_cpu_supports("avx512bf16")
#include FOVEA_EACH_LEVEL
#include "fovea/simd/levels/end.inl.hpp"
#undef FOVEA_EACH_LEVEL
