// SPDX-License-Identifier: MIT
/// \file
/// The kernels of the Fourier mixer, compiled once per instruction-set level, and the choice of the
/// level.
#pragma once

#include "fovea/simd/isa.hpp"
#include "fovea/spectral/mixer_kernels.hpp"

FOVEA_NAMESPACE_BEGIN

/// The kernels of one level for the scalar T (float or double).
template <class T>
struct MixerKernelTable {
  void (*join_rows)(const JoinRowsArgs<T>&) noexcept;          ///< two rows to complex numbers
  void (*fold_row)(const FoldRowArgs<T>&) noexcept;            ///< a spectrum to sums
  void (*spread_sums)(const SpreadSumsArgs<T>&) noexcept;      ///< sums to sequences
  void (*mixed_columns)(const MixedColumnsArgs<T>&) noexcept;  ///< spectra to the result
};

FOVEA_NAMESPACE_END

#define FOVEA_LEVEL_BODY "fovea/spectral/mixer_bodies.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

FOVEA_NAMESPACE_BEGIN

/// The kernels of one level, or those of the unit's own level if this unit was not compiled for it.
template <class T>
const MixerKernelTable<T>& mixer_kernels(IsaLevel level = isa_level()) {
  return FOVEA_AT_LEVEL(level, mixing::kMixerKernels<T>);
}

FOVEA_NAMESPACE_END
