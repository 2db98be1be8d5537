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

/// Both passes, for tensors of T. See `forward` and `backward`.
template <class T>
class MixerCalls {
 public:
  /// \param call of the same operator
  static CommStats forward(const FourierMixer& op, const View<const T>& x, const View<T>& out,
                           const Sharding& rows, const detail::CollectiveCall& call);
  /// \param call of the same operator
  static CommStats backward(const FourierMixer& op, const View<const T>& d_out, const View<T>& d_x,
                            const Sharding& rows, const detail::CollectiveCall& call);
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI) || !defined(FOVEA_COMPILED_FFTW)
#include "fovea/distributed/spectral/mixer_calls.inl.hpp"
#endif
