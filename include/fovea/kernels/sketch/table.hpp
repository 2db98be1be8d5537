// SPDX-License-Identifier: MIT
/// \file
/// The kernel that chooses keys by a sketch.
#pragma once

#include "fovea/kernels/sketch/select.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/simd/isa.hpp"

FOVEA_NAMESPACE_BEGIN

/// The kernel of the choice, for sketches of T.
template <class T>
struct SketchKernels {
  /// Chooses the keys of some rows.
  void select(const SketchSelectArgs<T>& args) const noexcept;

  /// The instruction-set level of the kernel; by default the machine's.
  IsaLevel level = isa_level();
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_KERNEL_BODIES

#define FOVEA_LEVEL_BODY "fovea/kernels/sketch/bodies.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

FOVEA_NAMESPACE_BEGIN

FOVEA_KERNEL(SketchKernels, select, SketchSelectArgs, sketch_select<T>)
FOVEA_KERNELS(SketchKernels)

FOVEA_NAMESPACE_END

#endif
