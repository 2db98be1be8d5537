// SPDX-License-Identifier: MIT
/// \file
/// The kernels of the Fourier mixer of one instruction-set level, and the table of them.

namespace mixing {

#include "fovea/spectral/complex.inl.hpp"
// The bodies below use the complex numbers of this one.
#include "fovea/spectral/mixer.inl.hpp"

/// The table of this level. It is a constant, so that no code of this level runs to make it.
template <class T>
inline constexpr MixerKernelTable<T> kMixerKernels = {&join_rows<T>, &fold_row<T>, &spread_sums<T>,
                                                      &mixed_columns<T>};

}  // namespace mixing
