// SPDX-License-Identifier: MIT
/// \file
/// The kernels of the cross of hidden states, compiled once per instruction-set level, and the
/// choice of the level.
#pragma once

#include "fovea/simd/isa.hpp"
#include "fovea/spectral/kernels.hpp"

FOVEA_NAMESPACE_BEGIN

/// The kernels of one level for the scalar T (float or double).
template <class T>
struct SpectralKernelTable {
  void (*gather_channels)(const GatherChannelsArgs<T>&) noexcept;    ///< rows to sequences
  void (*scatter_channels)(const ScatterChannelsArgs<T>&) noexcept;  ///< sequences to rows
  void (*spread)(const SpreadArgs<T>&) noexcept;  ///< the outer step of a transform
  /// the outer step of an inverse transform, less a product
  void (*finish)(const FinishArgs<T>&) noexcept;
  void (*cross_product)(const CrossProductArgs<T>&) noexcept;  ///< the product of two spectra
  void (*correlation)(const CorrelationArgs<T>&) noexcept;     ///< the product for a gradient
};

FOVEA_NAMESPACE_END

#define FOVEA_LEVEL_BODY "fovea/spectral/bodies.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

FOVEA_NAMESPACE_BEGIN

/// The kernels of one level, or those of the unit's own level if this unit was not compiled for it.
template <class T>
const SpectralKernelTable<T>& spectral_kernels(IsaLevel level = isa_level()) {
  return FOVEA_AT_LEVEL(level, spectral::kSpectralKernels<T>);
}

FOVEA_NAMESPACE_END
