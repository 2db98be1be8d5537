// SPDX-License-Identifier: MIT
/// \file
/// The kernels of attention to gathered keys, one function per pass.
#pragma once

#include "fovea/kernels/indexed/normal_density.hpp"
#include "fovea/kernels/indexed/phases.hpp"
#include "fovea/kernels/indexed/random_points.hpp"
#include "fovea/kernels/indexed/rows.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/simd/isa.hpp"

FOVEA_NAMESPACE_BEGIN

/// The kernel of forward passes, for tensors computed in T and stored in S.
template <class T, Storage S = Storage::native>
struct IndexedKernels {
  /// Computes some rows of one query head over the keys of their lists.
  void rows(const IndexedRowsArgs<T, S>& args) const noexcept;

  /// The instruction-set level of the kernel; by default the machine's.
  IsaLevel level = isa_level();
};

/// The kernels of forward passes in phases, for tensors of T.
template <class T>
struct IndexedPhaseKernels {
  /// Copies keys or values for the other kernels.
  void pack(const IndexedPackArgs<T>& args) const noexcept;
  /// Computes the logits of some rows for a block of keys, and after the last block their weights.
  void logits(const IndexedLogitsArgs<T>& args) const noexcept;
  /// Sums some columns of the values of some rows.
  void values(const IndexedValuesArgs<T>& args) const noexcept;

  /// The instruction-set level of the kernels; by default the machine's.
  IsaLevel level = isa_level();
};

/// The kernels of backward passes, for tensors of T.
template <class T>
struct IndexedGradKernels {
  /// Computes the gradients of queries, and the inputs for those of keys and values.
  void rows(const IndexedGradRowsArgs<T>& args) const noexcept;
  /// Computes the gradients of keys and values.
  void keys(const IndexedGradKeysArgs<T>& args) const noexcept;

  /// The instruction-set level of the kernels; by default the machine's.
  IsaLevel level = isa_level();
};

/// The kernels of FSAT's graph, with confidences of T.
template <class T>
struct GraphKernels {
  /// Computes the density of a normal distribution at some numbers, in place.
  void normal_density(const NormalDensityArgs<T>& args) const noexcept;
  /// Draws the queries of random edges.
  void random_points(const RandomPointsArgs& args) const noexcept;

  /// The instruction-set level of the kernels; by default the machine's.
  IsaLevel level = isa_level();
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_KERNEL_BODIES

#define FOVEA_LEVEL_BODY "fovea/kernels/indexed/bodies.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

FOVEA_NAMESPACE_BEGIN

FOVEA_STORED_KERNEL(IndexedKernels, rows, IndexedRowsArgs, indexed_rows<T, S>)
FOVEA_STORED_KERNELS(IndexedKernels)

FOVEA_KERNEL(IndexedPhaseKernels, pack, IndexedPackArgs, indexed_pack<T>)
FOVEA_KERNEL(IndexedPhaseKernels, logits, IndexedLogitsArgs, indexed_logits<T>)
FOVEA_KERNEL(IndexedPhaseKernels, values, IndexedValuesArgs, indexed_values<T>)
FOVEA_KERNELS(IndexedPhaseKernels)

FOVEA_KERNEL(IndexedGradKernels, rows, IndexedGradRowsArgs, indexed_grad_rows<T>)
FOVEA_KERNEL(IndexedGradKernels, keys, IndexedGradKeysArgs, indexed_grad_keys<T>)
FOVEA_KERNELS(IndexedGradKernels)

FOVEA_KERNEL(GraphKernels, normal_density, NormalDensityArgs, normal_density<T>)
template <class T>
void GraphKernels<T>::random_points(const RandomPointsArgs& args) const noexcept {
  FOVEA_AT_LEVEL(level, random_points)(args);
}
FOVEA_KERNELS(GraphKernels)

FOVEA_NAMESPACE_END

#endif
