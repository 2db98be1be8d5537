// SPDX-License-Identifier: MIT
/// \file
/// The kernels of softmax attention over patterns, one function for each pass.
#pragma once

#include "fovea/kernels/softmax/block.hpp"
#include "fovea/kernels/softmax/grad.hpp"
#include "fovea/kernels/softmax/row.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/simd/isa.hpp"

FOVEA_NAMESPACE_BEGIN

/// Forward and decoding, of tensors that are computed in T and stored in S.
template <class T, Storage S = Storage::native>
struct SoftmaxKernels {
  /// A block of queries against all that it sees.
  void block(const SoftmaxBlockArgs<T, S>& args) const noexcept;
  /// A few rows against some segments of what they see.
  void row(const SoftmaxRowArgs<T, S>& args) const noexcept;
  /// The rows of one head from what `row` left of their segments.
  void merge(const SoftmaxMergeArgs<T, S>& args) const noexcept;

  IsaLevel level = isa_level();
};

/// Backward, of tensors of T.
template <class T>
struct SoftmaxGradKernels {
  /// A block of queries against a block of keys.
  void grad(const SoftmaxGradArgs<T>& args) const noexcept;
  /// Rows of a tensor, copied.
  void packed_rows(const PackedRowsArgs<T>& args) const noexcept;
  /// Rows to be added to, or to become, rows of a tensor.
  void scaled_rows(const ScaledRowsArgs<T>& args) const noexcept;
  /// The gradient of the sink of one head.
  void sink_grad(const SinkGradArgs<T>& args) const noexcept;

  IsaLevel level = isa_level();
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_KERNEL_BODIES

#define FOVEA_LEVEL_BODY "fovea/kernels/softmax/bodies.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T, Storage S>
void SoftmaxKernels<T, S>::block(const SoftmaxBlockArgs<T, S>& args) const noexcept {
  FOVEA_AT_LEVEL(level, softmax_block<T, S>)(args);
}
template <class T, Storage S>
void SoftmaxKernels<T, S>::row(const SoftmaxRowArgs<T, S>& args) const noexcept {
  FOVEA_AT_LEVEL(level, softmax_row<T, S>)(args);
}
template <class T, Storage S>
void SoftmaxKernels<T, S>::merge(const SoftmaxMergeArgs<T, S>& args) const noexcept {
  FOVEA_AT_LEVEL(level, softmax_merge<T, S>)(args);
}
FOVEA_STORED_KERNELS(SoftmaxKernels)

template <class T>
void SoftmaxGradKernels<T>::grad(const SoftmaxGradArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, softmax_grad<T>)(args);
}
template <class T>
void SoftmaxGradKernels<T>::packed_rows(const PackedRowsArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, packed_rows<T>)(args);
}
template <class T>
void SoftmaxGradKernels<T>::scaled_rows(const ScaledRowsArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, scaled_rows<T>)(args);
}
template <class T>
void SoftmaxGradKernels<T>::sink_grad(const SinkGradArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, sink_grad<T>)(args);
}
FOVEA_KERNELS(SoftmaxGradKernels)

FOVEA_NAMESPACE_END

#endif
