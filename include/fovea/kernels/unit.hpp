// SPDX-License-Identifier: MIT
/// \file
/// Where kernels and passes are compiled.
///
/// By default a translation unit compiles what it calls: only the used members of a family's kernel
/// table, for its scalars and storages. If several units call operators, a library can compile
/// everything once: it and all units that use it are built with the macro FOVEA_COMPILED. Its own
/// units also define FOVEA_KERNELS_UNIT and include the tables of kernels, or define
/// FOVEA_PASSES_UNIT and include files that define passes (`.inl.hpp` outside of kernels), which
/// headers then omit. If these macros are 32 or 64, a unit compiles only code for float (and 16-bit
/// numbers) or double. fovea/compiled.hpp is such a library in one source: it defines
/// FOVEA_COMPILES_ALL, and headers include all definitions.
#pragma once

#include "fovea/core/scalar.hpp"
#include "fovea/simd/isa.hpp"
#include "fovea/simd/region.hpp"

#if defined(FOVEA_COMPILED) && !defined(FOVEA_KERNELS_UNIT)
#define FOVEA_HAS_KERNEL_BODIES 0
#else
#define FOVEA_HAS_KERNEL_BODIES 1
#endif

// Whether headers include the definitions of passes. Distributed passes, which need MPI, and those
// of the Fourier cross, which need FFTW, are omitted where FOVEA_COMPILED_MPI and
// FOVEA_COMPILED_FFTW are defined.
#if defined(FOVEA_COMPILED) && !defined(FOVEA_COMPILES_ALL)
#define FOVEA_HAS_PASS_BODIES 0
#else
#define FOVEA_HAS_PASS_BODIES 1
#endif

// FOVEA_KERNEL(Table, member, Args, kernel) defines a member of a table for tensors of T: `kernel`
// at the table's level. FOVEA_STORED_KERNEL is the same for tensors computed in T and stored in S.
#define FOVEA_KERNEL(Table, member, Args, ...)                \
  template <class T>                                          \
  void Table<T>::member(const Args<T>& args) const noexcept { \
    FOVEA_AT_LEVEL(level, __VA_ARGS__)(args);                 \
  }
#define FOVEA_STORED_KERNEL(Table, member, Args, ...)               \
  template <class T, Storage S>                                     \
  void Table<T, S>::member(const Args<T, S>& args) const noexcept { \
    FOVEA_AT_LEVEL(level, __VA_ARGS__)(args);                       \
  }

// The same for a kernel that v4_bf16 changes.
#define FOVEA_BF16_KERNEL(Table, member, Args, ...)                 \
  template <class T, Storage S>                                     \
  void Table<T, S>::member(const Args<T, S>& args) const noexcept { \
    if constexpr (S == Storage::bfloat16) {                         \
      const bool has_pairs = level == IsaLevel::v4_bf16;            \
      if (has_pairs) return ::fovea::v4_bf16::__VA_ARGS__(args);    \
    }                                                               \
    FOVEA_AT_LEVEL(level, __VA_ARGS__)(args);                       \
  }

// FOVEA_KERNELS(Table) and FOVEA_STORED_KERNELS(Table) instantiate a whole table in a unit that
// compiles the kernels for all.
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

// FOVEA_PASSES(Class) instantiates a class template in a unit that compiles passes;
// FOVEA_FLOAT_AND_DOUBLE_PASSES(Class) one without a 16-bit form.
#define FOVEA_PASSES_CLASS(Class, T) template class Class<T>;
#define FOVEA_FLOAT_AND_DOUBLE_PASSES(Class)     \
  FOVEA_IN_FLOAT_UNIT(FOVEA_PASSES_CLASS, Class) \
  FOVEA_IN_DOUBLE_UNIT(FOVEA_PASSES_CLASS, Class)
#define FOVEA_PASSES(Class) \
  FOVEA_FLOAT_AND_DOUBLE_PASSES(Class) FOVEA_IN_SHORT_UNIT(FOVEA_PASSES_CLASS, Class)
