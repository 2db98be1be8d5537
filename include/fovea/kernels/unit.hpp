// SPDX-License-Identifier: MIT
/// \file
/// Where kernels are compiled.
///
/// By default in the translation units that call them: of a family's table a unit compiles the
/// members that it calls, for its scalars and storages, and no others. Where several units do, one
/// can do it for all: build every unit with the macro FOVEA_EXTERN_KERNELS, and one of them, which
/// needs to hold nothing but the include of kernels/table.hpp, with FOVEA_KERNELS_UNIT besides; or
/// two of them, side by side, with FOVEA_KERNELS_UNIT=32 for float and FOVEA_KERNELS_UNIT=64 for
/// double. A unit may hold one family alone, by the include of its table.
#pragma once

#include "fovea/core/scalar.hpp"
#include "fovea/simd/isa.hpp"
#include "fovea/simd/region.hpp"

#if defined(FOVEA_EXTERN_KERNELS) && !defined(FOVEA_KERNELS_UNIT)
#define FOVEA_HAS_KERNEL_BODIES 0
#else
#define FOVEA_HAS_KERNEL_BODIES 1
#endif

// FOVEA_KERNELS(Table), FOVEA_STORED_KERNELS(Table): everything of a table, where the unit is for
// all.
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
