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

template <class T>
void CrossKernels<T>::gather_channels(const GatherChannelsArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, spectral::gather_channels<T>)(args);
}
template <class T>
void CrossKernels<T>::scatter_channels(const ScatterChannelsArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, spectral::scatter_channels<T>)(args);
}
template <class T>
void CrossKernels<T>::outer_step(const OuterStepArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, spectral::outer_step<T>)(args);
}
template <class T>
void CrossKernels<T>::finish(const FinishArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, spectral::finish<T>)(args);
}
template <class T>
void CrossKernels<T>::cross_product(const CrossProductArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, spectral::cross_product<T>)(args);
}
template <class T>
void CrossKernels<T>::correlation(const CorrelationArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, spectral::correlation<T>)(args);
}
FOVEA_KERNELS(CrossKernels)

template <class T>
void MixerKernels<T>::join_rows(const JoinRowsArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, spectral::join_rows<T>)(args);
}
template <class T>
void MixerKernels<T>::fold_row(const FoldRowArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, spectral::fold_row<T>)(args);
}
template <class T>
void MixerKernels<T>::unpack_sums(const UnpackSumsArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, spectral::unpack_sums<T>)(args);
}
template <class T>
void MixerKernels<T>::mixed_columns(const MixedColumnsArgs<T>& args) const noexcept {
  FOVEA_AT_LEVEL(level, spectral::mixed_columns<T>)(args);
}
FOVEA_KERNELS(MixerKernels)

FOVEA_NAMESPACE_END

#endif
