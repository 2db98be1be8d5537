// SPDX-License-Identifier: MIT
/// \file
/// The spectral kernels of one instruction-set level, and the table of them.

namespace spectral {

#include "fovea/spectral/complex.inl.hpp"
// The bodies below use the complex numbers of this one.
#include "fovea/spectral/channels.inl.hpp"
#include "fovea/spectral/outer_step.inl.hpp"
#include "fovea/spectral/spectra.inl.hpp"

/// The table of this level. It is a constant, so that no code of this level runs to make it.
template <class T>
inline constexpr SpectralKernelTable<T> kSpectralKernels = {
    &gather_channels<T>, &scatter_channels<T>, &spread<T>,
    &finish<T>,          &cross_product<T>,    &correlation<T>};

}  // namespace spectral
