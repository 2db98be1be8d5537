// SPDX-License-Identifier: MIT
/// \file
/// The spectral kernels of one instruction-set level, in dependency order. They have their own
/// namespace, since their complex numbers have operators.

namespace spectral {

#include "fovea/kernels/spectral/complex.inl.hpp"
// The bodies below use its complex numbers.
#include "fovea/kernels/spectral/channels.inl.hpp"
#include "fovea/kernels/spectral/mixer.inl.hpp"
#include "fovea/kernels/spectral/outer_step.inl.hpp"
#include "fovea/kernels/spectral/spectra.inl.hpp"

}  // namespace spectral
