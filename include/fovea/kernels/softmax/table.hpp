// SPDX-License-Identifier: MIT
/// \file
/// The kernels of softmax attention over patterns, one function per pass.
#pragma once

#include "fovea/kernels/softmax/block.hpp"
#include "fovea/kernels/softmax/grad.hpp"
#include "fovea/kernels/softmax/row.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/simd/isa.hpp"

FOVEA_NAMESPACE_BEGIN

/// The kernels of forward passes and decoding, for tensors computed in T and stored in S.
template <class T, Storage S = Storage::native>
struct SoftmaxKernels {
  /// Computes a block of queries over all visible keys.
  void block(const SoftmaxBlockArgs<T, S>& args) const noexcept;
  /// The same; faster for narrow bands of common widths.
  void band_block(const SoftmaxBlockArgs<T, S>& args) const noexcept;
  /// Computes the running softmax of a few rows over some segments of their visible keys.
  void row(const SoftmaxRowArgs<T, S>& args) const noexcept;
  /// Computes the rows of one head from the results of `row` for their segments.
  void merge(const SoftmaxMergeArgs<T, S>& args) const noexcept;

  /// The instruction-set level of the kernels; by default the machine's.
  IsaLevel level = isa_level();
};

/// The kernels of backward passes, for tensors of T.
template <class T>
struct SoftmaxGradKernels {
  /// Computes the contributions of a block of queries and a block of keys to the gradients.
  void grad(const SoftmaxGradArgs<T>& args) const noexcept;
  /// Copies rows of a tensor.
  void packed_rows(const PackedRowsArgs<T>& args) const noexcept;
  /// Adds rows to rows of a tensor, or overwrites these.
  void scaled_rows(const ScaledRowsArgs<T>& args) const noexcept;
  /// Computes the gradient of the sink of one query head.
  void sink_grad(const SinkGradArgs<T>& args) const noexcept;

  /// The instruction-set level of the kernels; by default the machine's.
  IsaLevel level = isa_level();
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_KERNEL_BODIES

#define FOVEA_LEVEL_BODY "fovea/kernels/softmax/bodies.inl.hpp"
#define FOVEA_LEVEL_BODY_HAS_BF16
#include "fovea/simd/foreach_level.hpp"

FOVEA_NAMESPACE_BEGIN

FOVEA_BF16_KERNEL(SoftmaxKernels, block, SoftmaxBlockArgs, softmax_block<T, S>)
template <class T, Storage S>
void SoftmaxKernels<T, S>::band_block(const SoftmaxBlockArgs<T, S>& args) const noexcept {
  // Only the band form differs, which 16-bit storage lacks.
  if constexpr (S == Storage::native) {
    FOVEA_AT_LEVEL(level, softmax_block<T, S, true>)(args);
  } else {
    block(args);
  }
}
FOVEA_BF16_KERNEL(SoftmaxKernels, row, SoftmaxRowArgs, softmax_row<T, S>)
FOVEA_STORED_KERNEL(SoftmaxKernels, merge, SoftmaxMergeArgs, softmax_merge<T, S>)
FOVEA_STORED_KERNELS(SoftmaxKernels)

FOVEA_KERNEL(SoftmaxGradKernels, grad, SoftmaxGradArgs, softmax_grad<T>)
FOVEA_KERNEL(SoftmaxGradKernels, packed_rows, PackedRowsArgs, packed_rows<T>)
FOVEA_KERNEL(SoftmaxGradKernels, scaled_rows, ScaledRowsArgs, scaled_rows<T>)
FOVEA_KERNEL(SoftmaxGradKernels, sink_grad, SinkGradArgs, sink_grad<T>)
FOVEA_KERNELS(SoftmaxGradKernels)

FOVEA_NAMESPACE_END

#endif
