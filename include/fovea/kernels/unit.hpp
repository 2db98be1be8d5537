// SPDX-License-Identifier: MIT
/// \file
/// Where kernels are compiled.
///
/// By default a translation unit compiles the kernels that it calls: of the table of a family only
/// the members that it uses, for its scalars and storages. Where several units call kernels, one
/// unit can compile them for all. Build every unit with the macro FOVEA_EXTERN_KERNELS, and one of
/// them also with FOVEA_KERNELS_UNIT; that one needs to include nothing but kernels/table.hpp. Or
/// divide the work between two units, with FOVEA_KERNELS_UNIT=32 for float and
/// FOVEA_KERNELS_UNIT=64 for double. A unit that includes the table of one family alone holds that
/// family alone.
#pragma once

#include "fovea/core/scalar.hpp"
#include "fovea/simd/isa.hpp"
#include "fovea/simd/region.hpp"

#if defined(FOVEA_EXTERN_KERNELS) && !defined(FOVEA_KERNELS_UNIT)
#define FOVEA_HAS_KERNEL_BODIES 0
#else
#define FOVEA_HAS_KERNEL_BODIES 1
#endif

// The same for passes, which one unit or more compile by FOVEA_PASSES_UNIT.
#if defined(FOVEA_EXTERN_KERNELS) && !defined(FOVEA_PASSES_UNIT)
#define FOVEA_HAS_PASS_BODIES 0
#else
#define FOVEA_HAS_PASS_BODIES 1
#endif

// FOVEA_KERNELS(Table) and FOVEA_STORED_KERNELS(Table) instantiate everything of a table in a unit
// that compiles the kernels for all.
#if defined(FOVEA_KERNELS_UNIT) && FOVEA_KERNELS_UNIT + 0 != 64
#define FOVEA_FLOAT_KERNELS(Table) template struct Table<float>;
#define FOVEA_SHORT_KERNELS(Table)                 \
  template struct Table<float, Storage::bfloat16>; \
  template struct Table<float, Storage::float16>;
#else
#define FOVEA_FLOAT_KERNELS(Table)
#define FOVEA_SHORT_KERNELS(Table)
#endif
#if defined(FOVEA_KERNELS_UNIT) && FOVEA_KERNELS_UNIT + 0 != 32
#define FOVEA_DOUBLE_KERNELS(Table) template struct Table<double>;
#else
#define FOVEA_DOUBLE_KERNELS(Table)
#endif
#define FOVEA_KERNELS(Table) FOVEA_FLOAT_KERNELS(Table) FOVEA_DOUBLE_KERNELS(Table)
#define FOVEA_STORED_KERNELS(Table) FOVEA_KERNELS(Table) FOVEA_SHORT_KERNELS(Table)

// FOVEA_IN_FLOAT_UNIT(M, X) is M(X, float) in a unit that compiles the passes for float, and so on.
#if defined(FOVEA_PASSES_UNIT) && FOVEA_PASSES_UNIT + 0 != 64
#define FOVEA_IN_FLOAT_UNIT(M, X) M(X, float)
#define FOVEA_IN_SHORT_UNIT(M, X) M(X, Eigen::bfloat16) M(X, Eigen::half)
#else
#define FOVEA_IN_FLOAT_UNIT(M, X)
#define FOVEA_IN_SHORT_UNIT(M, X)
#endif
#if defined(FOVEA_PASSES_UNIT) && FOVEA_PASSES_UNIT + 0 != 32
#define FOVEA_IN_DOUBLE_UNIT(M, X) M(X, double)
#else
#define FOVEA_IN_DOUBLE_UNIT(M, X)
#endif

// FOVEA_PASSES(Class) instantiates a class template in a unit that compiles passes for its scalars;
// FOVEA_FLOAT_AND_DOUBLE_PASSES(Class) one that has no form for numbers of 16 bits.
#define FOVEA_PASSES_CLASS(Class, T) template class Class<T>;
#define FOVEA_FLOAT_AND_DOUBLE_PASSES(Class)     \
  FOVEA_IN_FLOAT_UNIT(FOVEA_PASSES_CLASS, Class) \
  FOVEA_IN_DOUBLE_UNIT(FOVEA_PASSES_CLASS, Class)
#define FOVEA_PASSES(Class) \
  FOVEA_FLOAT_AND_DOUBLE_PASSES(Class) FOVEA_IN_SHORT_UNIT(FOVEA_PASSES_CLASS, Class)
