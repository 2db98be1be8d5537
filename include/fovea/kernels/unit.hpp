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

// FOVEA_PASSES(Passes) and FOVEA_FLOAT_AND_DOUBLE_PASSES(Passes) do the same for passes.
#if defined(FOVEA_PASSES_UNIT) && FOVEA_PASSES_UNIT + 0 != 64
#define FOVEA_FLOAT_PASSES(Passes) template class Passes<float>;
#define FOVEA_SHORT_PASSES(Passes)        \
  template class Passes<Eigen::bfloat16>; \
  template class Passes<Eigen::half>;
#else
#define FOVEA_FLOAT_PASSES(Passes)
#define FOVEA_SHORT_PASSES(Passes)
#endif
#if defined(FOVEA_PASSES_UNIT) && FOVEA_PASSES_UNIT + 0 != 32
#define FOVEA_DOUBLE_PASSES(Passes) template class Passes<double>;
#else
#define FOVEA_DOUBLE_PASSES(Passes)
#endif
#define FOVEA_FLOAT_AND_DOUBLE_PASSES(Passes) FOVEA_FLOAT_PASSES(Passes) FOVEA_DOUBLE_PASSES(Passes)
#define FOVEA_PASSES(Passes) FOVEA_FLOAT_AND_DOUBLE_PASSES(Passes) FOVEA_SHORT_PASSES(Passes)
