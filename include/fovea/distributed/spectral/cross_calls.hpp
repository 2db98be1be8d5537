// SPDX-License-Identifier: MIT
/// \file
/// The calls of the Fourier cross across ranks, which depend only on the scalar type, so that a
/// library can compile them once (kernels/unit.hpp).
#pragma once

#include "fovea/distributed/messages/call.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/spectral/hidden_state_cross.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Both passes, for tensors of T. See `forward` and `backward`.
template <class T>
class CrossCalls {
 public:
  /// \param call of the same operator
  static CommStats forward(const HiddenStateCross& op, const CrossInputs<T>& inputs,
                           const View<T>& out, const Sharding& rows,
                           const detail::CollectiveCall& call);
  /// \param call of the same operator
  static CommStats backward(const HiddenStateCross& op, const CrossInputs<T>& inputs,
                            const View<const T>& d_out, const CrossGrads<T>& grads,
                            const Sharding& rows, const detail::CollectiveCall& call);
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI) || !defined(FOVEA_COMPILED_FFTW)
#include "fovea/distributed/spectral/cross_calls.inl.hpp"
#endif
