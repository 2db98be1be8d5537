// SPDX-License-Identifier: MIT
/// \file
/// Includes the file that the macro FOVEA_EACH_LEVEL names once for each instruction-set level that
/// all kernels are compiled for, from the lowest to the highest. For that file these macros
/// describe the level:
/// - FOVEA_LEVEL, its number, and FOVEA_LEVEL_NAME, its enumerator of IsaLevel and its namespace;
/// - FOVEA_LEVEL_VEC_BYTES, the bytes of a register;
/// - FOVEA_LEVEL_ARCH, the file of simd/arch with the operations that differ from machine to
///   machine, and FOVEA_LEVEL_OPERATIONS, the struct that holds them;
/// - FOVEA_LEVEL_TARGET, the compiler's names of features needed beyond the unit's flags;
/// - FOVEA_LEVEL_IS_ON_MACHINE, an expression: whether this machine has them.
///
/// A new level is such a file, a file of simd/arch unless one fits, an enumerator with its line
/// in FOVEA_LEVELS (simd/isa.hpp), and a line here. No include guard.

#include "fovea/simd/levels/baseline.inl.hpp"
#include "fovea/simd/levels/v3.inl.hpp"
#include "fovea/simd/levels/v4.inl.hpp"
#undef FOVEA_EACH_LEVEL
