// SPDX-License-Identifier: MIT
/// \file
/// The kernels of every instruction-set level, and the choice of a level.
///
/// A translation unit compiles the kernels that it calls, and no others. Where several do, one can
/// do it for all: build every unit with the macro FOVEA_EXTERN_KERNELS, and one of them, which
/// needs to hold nothing but the include of this header, with FOVEA_KERNELS_UNIT besides; or two of
/// them, side by side, with FOVEA_KERNELS_UNIT=32 for float and FOVEA_KERNELS_UNIT=64 for double.
#pragma once

#include "fovea/kernels/indexed/gather.hpp"
#include "fovea/kernels/indexed/normal_density.hpp"
#include "fovea/kernels/linear/delta_rule.hpp"
#include "fovea/kernels/linear/grad.hpp"
#include "fovea/kernels/linear/linear.hpp"
#include "fovea/kernels/sketch/select.hpp"
#include "fovea/kernels/softmax/block.hpp"
#include "fovea/kernels/softmax/grad.hpp"
#include "fovea/kernels/softmax/row.hpp"
#include "fovea/simd/isa.hpp"

// Every kernel: its name, and what it is given.
#define FOVEA_EACH_KERNEL(f)                                                                   \
  f(softmax_block, SoftmaxBlockArgs) f(softmax_grad, SoftmaxGradArgs)                          \
      f(packed_rows, PackedRowsArgs) f(scaled_rows, ScaledRowsArgs) f(sink_grad, SinkGradArgs) \
          f(softmax_row, SoftmaxRowArgs) f(softmax_merge, SoftmaxMergeArgs)                    \
              f(linear_stream, LinearStreamArgs) f(linear_sum, LinearSumArgs)                  \
                  f(linear_fold, LinearFoldArgs) f(linear_read, LinearReadArgs)                \
                      f(linear_grad_causal_rows, LinearGradCausalArgs)                         \
                          f(linear_grad_causal_keys, LinearGradCausalArgs)                     \
                              f(linear_grad_rows, LinearGradRowsArgs)                          \
                                  f(linear_grad_keys, LinearGradKeysArgs)                      \
                                      f(delta_stream, DeltaStreamArgs)                         \
                                          f(delta_grad, DeltaGradArgs) f(gather, GatherArgs)   \
                                              f(gather_grad_rows, GatherGradRowsArgs)          \
                                                  f(gather_grad_keys, GatherGradKeysArgs)      \
                                                      f(sketch_select, SketchSelectArgs)       \
                                                          f(normal_density, NormalDensityArgs)

#if defined(FOVEA_EXTERN_KERNELS)

FOVEA_NAMESPACE_BEGIN

/// One level's kernels for the scalar T (float or double), wherever they were compiled.
template <class T>
struct KernelTable {
#define FOVEA_KERNEL(kernel, Args) void (*kernel)(const Args<T>&) noexcept;
  FOVEA_EACH_KERNEL(FOVEA_KERNEL)
#undef FOVEA_KERNEL
};

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

/// One level's kernels for the scalar T (float or double). Each is compiled where it is called: its
/// instantiation is that of the member, at every level.
template <class T>
struct KernelTable {
#define FOVEA_KERNEL(kernel, Args) \
  void kernel(const Args<T>& args) const noexcept { FOVEA_AT_LEVEL(level, kernel<T>)(args); }
  FOVEA_EACH_KERNEL(FOVEA_KERNEL)
#undef FOVEA_KERNEL

  IsaLevel level;
};

/// The kernels of one level; those of the unit's own level where it was not compiled.
template <class T>
KernelTable<T> kernels(IsaLevel level = isa_level()) {
  return {level};
}
#endif

FOVEA_NAMESPACE_END

#endif
#undef FOVEA_EACH_KERNEL
