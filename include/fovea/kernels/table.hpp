// SPDX-License-Identifier: MIT
/// \file
/// The kernels of every instruction-set level as tables of function pointers, and the choice.
#pragma once

#include "fovea/kernels/softmax_block.hpp"
#include "fovea/simd/isa.hpp"

FOVEA_NAMESPACE_BEGIN

/// One level's kernels for the scalar T (float or double).
template <class T>
struct KernelTable {
  void (*softmax_block)(const SoftmaxBlockArgs<T>&) noexcept;
};

FOVEA_NAMESPACE_END

#define FOVEA_LEVEL_BODY "fovea/kernels/bodies.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

FOVEA_NAMESPACE_BEGIN

/// The kernels of one level; those of the unit's own level where it was not compiled.
template <class T>
const KernelTable<T>& kernels(IsaLevel level = isa_level()) {
  return FOVEA_AT_LEVEL(level, kKernels<T>);
}

FOVEA_NAMESPACE_END
