// SPDX-License-Identifier: MIT
/// \file
/// The calls of Performer attention across ranks, which depend only on the scalar type, so that a
/// library can compile them once (kernels/unit.hpp).
#pragma once

#include "fovea/attention/linear/performer_passes.hpp"
#include "fovea/distributed/messages/call.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Both passes, for tensors of T. See `forward` and `backward`.
template <class T>
class PerformerCalls {
 public:
  /// \param call of the same operator
  static CommStats forward(const PerformerSettings& op, const PerformerInputs<T>& inputs,
                           const View<T>& out, const Sharding& rows,
                           const detail::CollectiveCall& call);
  /// \param call of the same operator
  static CommStats backward(const PerformerSettings& op, const PerformerInputs<T>& inputs,
                            const View<const T>& out, const View<const T>& d_out,
                            const PerformerGrads<T>& grads, const Sharding& rows,
                            const detail::CollectiveCall& call);
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/linear/performer_calls.inl.hpp"
#endif
