// SPDX-License-Identifier: MIT
/// \file
/// The spectral kernels of one instruction-set level, and their table.

namespace spectral {

#include "fovea/spectral/complex.inl.hpp"
// What follows stands on it.
#include "fovea/spectral/channels.inl.hpp"
#include "fovea/spectral/outer_step.inl.hpp"
#include "fovea/spectral/spectra.inl.hpp"

/// It must be a value that needs no code of this level to be made.
template <class T>
inline constexpr SpectralKernelTable<T> kSpectralKernels = {
    &gather_channels<T>, &scatter_channels<T>, &spread<T>,
    &finish<T>,          &cross_product<T>,    &correlation<T>};

}  // namespace spectral
