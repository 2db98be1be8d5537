// SPDX-License-Identifier: MIT
/// \file
/// The calls of Smart Bird attention over ranks, which depend only on the scalar type, so that a
/// library can compile them once (kernels/unit.hpp).
#pragma once

#include "fovea/attention/smart_bird.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The forward pass, for tensors of T. See `forward`.
template <class T>
class SmartBirdCalls {
 public:
  /// \param call of the same operator
  static Traffic forward(const SmartBirdAttention& op, const SmartBirdInputs<T>& inputs,
                         const View<T>& out, const SmartBirdSaved<T>& saved, const Rows& rows,
                         const detail::RanksCall& call);
};

/// The backward pass, for tensors of T. See `backward`.
template <class T>
class SmartBirdBackwardCalls {
 public:
  /// \param call of the same operator
  static Traffic backward(const SmartBirdAttention& op, const SmartBirdInputs<T>& inputs,
                          const View<const T>& out, const SmartBirdSaved<T>& saved,
                          const View<const T>& d_out, const SmartBirdGrads<T>& grads,
                          const Rows& rows, const detail::RanksCall& call);
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/smart_bird/calls.inl.hpp"
#endif
