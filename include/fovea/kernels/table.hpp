// SPDX-License-Identifier: MIT
/// \file
/// The kernels of every instruction-set level as tables of function pointers, and the choice.
///
/// A translation unit compiles the kernels that it uses. Where several do, one can do it for all:
/// build every unit with the macro FOVEA_EXTERN_KERNELS, and one of them, which needs to hold
/// nothing but the include of this header, with FOVEA_KERNELS_UNIT besides; or two of them, side by
/// side, with FOVEA_KERNELS_UNIT=32 for float and FOVEA_KERNELS_UNIT=64 for double.
#pragma once

#include "fovea/kernels/delta_rule.hpp"
#include "fovea/kernels/gather.hpp"
#include "fovea/kernels/linear_attention.hpp"
#include "fovea/kernels/linear_grad.hpp"
#include "fovea/kernels/normal_density.hpp"
#include "fovea/kernels/sketch_select.hpp"
#include "fovea/kernels/softmax_block.hpp"
#include "fovea/kernels/softmax_grad.hpp"
#include "fovea/kernels/softmax_row.hpp"
#include "fovea/simd/isa.hpp"

FOVEA_NAMESPACE_BEGIN

/// One level's kernels for the scalar T (float or double).
template <class T>
struct KernelTable {
  void (*softmax_block)(const SoftmaxBlockArgs<T>&) noexcept;
  void (*softmax_grad)(const SoftmaxGradArgs<T>&) noexcept;
  void (*packed_rows)(const PackedRowsArgs<T>&) noexcept;
  void (*scaled_rows)(const ScaledRowsArgs<T>&) noexcept;
  void (*sink_grad)(const SinkGradArgs<T>&) noexcept;
  void (*softmax_row)(const SoftmaxRowArgs<T>&) noexcept;
  void (*softmax_merge)(const SoftmaxMergeArgs<T>&) noexcept;
  void (*linear_stream)(const LinearStreamArgs<T>&) noexcept;
  void (*linear_sum)(const LinearSumArgs<T>&) noexcept;
  void (*linear_fold)(const LinearFoldArgs<T>&) noexcept;
  void (*linear_read)(const LinearReadArgs<T>&) noexcept;
  void (*linear_grad_causal_rows)(const LinearGradCausalArgs<T>&) noexcept;
  void (*linear_grad_causal_keys)(const LinearGradCausalArgs<T>&) noexcept;
  void (*linear_grad_rows)(const LinearGradRowsArgs<T>&) noexcept;
  void (*linear_grad_keys)(const LinearGradKeysArgs<T>&) noexcept;
  void (*delta_stream)(const DeltaStreamArgs<T>&) noexcept;
  void (*delta_grad)(const DeltaGradArgs<T>&) noexcept;
  void (*gather)(const GatherArgs<T>&) noexcept;
  void (*gather_grad_rows)(const GatherGradRowsArgs<T>&) noexcept;
  void (*gather_grad_keys)(const GatherGradKeysArgs<T>&) noexcept;
  void (*sketch_select)(const SketchSelectArgs<T>&) noexcept;
  void (*normal_density)(const NormalDensityArgs<T>&) noexcept;
};

FOVEA_NAMESPACE_END

#if defined(FOVEA_EXTERN_KERNELS)

FOVEA_NAMESPACE_BEGIN

/// The kernels of one level, compiled by the unit with FOVEA_KERNELS_UNIT.
template <class T>
const KernelTable<T>& kernels(IsaLevel level = isa_level());
template <>
const KernelTable<float>& kernels<float>(IsaLevel level);
template <>
const KernelTable<double>& kernels<double>(IsaLevel level);

FOVEA_NAMESPACE_END

#endif

#if !defined(FOVEA_EXTERN_KERNELS) || defined(FOVEA_KERNELS_UNIT)

#define FOVEA_LEVEL_BODY "fovea/kernels/bodies.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

FOVEA_NAMESPACE_BEGIN

#if defined(FOVEA_KERNELS_UNIT)
#if FOVEA_KERNELS_UNIT + 0 != 64
template <>
const KernelTable<float>& kernels<float>(IsaLevel level) {
  return FOVEA_AT_LEVEL(level, kKernels<float>);
}
#endif
#if FOVEA_KERNELS_UNIT + 0 != 32
template <>
const KernelTable<double>& kernels<double>(IsaLevel level) {
  return FOVEA_AT_LEVEL(level, kKernels<double>);
}
#endif
#else
/// The kernels of one level; those of the unit's own level where it was not compiled.
template <class T>
const KernelTable<T>& kernels(IsaLevel level = isa_level()) {
  return FOVEA_AT_LEVEL(level, kKernels<T>);
}
#endif

FOVEA_NAMESPACE_END

#endif
