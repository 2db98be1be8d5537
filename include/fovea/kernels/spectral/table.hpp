// SPDX-License-Identifier: MIT
/// \file
/// The kernels that surround FFTW's transforms, one function per step.
#pragma once

#include "fovea/kernels/spectral/cross.hpp"
#include "fovea/kernels/spectral/mixer.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/simd/isa.hpp"

FOVEA_NAMESPACE_BEGIN

/// The kernels of the cross of hidden states, for tensors of T.
template <class T>
struct CrossKernels {
  /// Transposes rows into sequences.
  void gather_channels(const GatherChannelsArgs<T>& args) const noexcept;
  /// Transposes sequences into rows.
  void scatter_channels(const ScatterChannelsArgs<T>& args) const noexcept;
  /// The outer step of a transform.
  void outer_step(const OuterStepArgs<T>& args) const noexcept;
  /// The outer step of an inverse transform, minus a product.
  void finish(const FinishArgs<T>& args) const noexcept;
  /// The product of two spectra.
  void cross_product(const CrossProductArgs<T>& args) const noexcept;
  /// The product for a gradient.
  void correlation(const CorrelationArgs<T>& args) const noexcept;

  /// The instruction-set level of the kernels; by default the machine's.
  IsaLevel level = isa_level();
};

/// The kernels of the Fourier mixer, for tensors of T.
template <class T>
struct MixerKernels {
  /// Joins two rows to complex numbers.
  void join_rows(const JoinRowsArgs<T>& args) const noexcept;
  /// Computes sums from a spectrum.
  void fold_row(const FoldRowArgs<T>& args) const noexcept;
  /// Computes sequences from sums.
  void unpack_sums(const UnpackSumsArgs<T>& args) const noexcept;
  /// Computes the result from spectra.
  void mixed_columns(const MixedColumnsArgs<T>& args) const noexcept;

  /// The instruction-set level of the kernels; by default the machine's.
  IsaLevel level = isa_level();
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_KERNEL_BODIES

#define FOVEA_LEVEL_BODY "fovea/kernels/spectral/bodies.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

FOVEA_NAMESPACE_BEGIN

FOVEA_KERNEL(CrossKernels, gather_channels, GatherChannelsArgs, spectral::gather_channels<T>)
FOVEA_KERNEL(CrossKernels, scatter_channels, ScatterChannelsArgs, spectral::scatter_channels<T>)
FOVEA_KERNEL(CrossKernels, outer_step, OuterStepArgs, spectral::outer_step<T>)
FOVEA_KERNEL(CrossKernels, finish, FinishArgs, spectral::finish<T>)
FOVEA_KERNEL(CrossKernels, cross_product, CrossProductArgs, spectral::cross_product<T>)
FOVEA_KERNEL(CrossKernels, correlation, CorrelationArgs, spectral::correlation<T>)
FOVEA_KERNELS(CrossKernels)

FOVEA_KERNEL(MixerKernels, join_rows, JoinRowsArgs, spectral::join_rows<T>)
FOVEA_KERNEL(MixerKernels, fold_row, FoldRowArgs, spectral::fold_row<T>)
FOVEA_KERNEL(MixerKernels, unpack_sums, UnpackSumsArgs, spectral::unpack_sums<T>)
FOVEA_KERNEL(MixerKernels, mixed_columns, MixedColumnsArgs, spectral::mixed_columns<T>)
FOVEA_KERNELS(MixerKernels)

FOVEA_NAMESPACE_END

#endif
