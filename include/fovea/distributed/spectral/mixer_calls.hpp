// SPDX-License-Identifier: MIT
/// \file
/// The calls of the Fourier mixer across ranks, which depend only on the scalar type, so that a
/// library can compile them once (kernels/unit.hpp).
#pragma once

#include "fovea/distributed/messages/call.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/spectral/fourier_mixer.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Both passes, which are the same map, for tensors of T. See `forward` and `backward`.
/// \param is_backward whether x and out are gradients   \param call of the same operator
template <class T>
CommStats mix(const FourierMixer& op, bool is_backward, const View<const T>& x, const View<T>& out,
              const Sharding& rows, const detail::CollectiveCall& call);

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI) || !defined(FOVEA_COMPILED_FFTW)
#include "fovea/distributed/spectral/mixer_calls.inl.hpp"
#endif
