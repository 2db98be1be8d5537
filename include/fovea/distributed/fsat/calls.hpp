// SPDX-License-Identifier: MIT
/// \file
/// The calls of FSAT attention over ranks, which depend only on the scalar type, so that a library
/// can compile them once (kernels/unit.hpp).
#pragma once

#include "fovea/attention/fsat.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The forward pass, for tensors of T. See `forward`.
template <class T>
class FsatCalls {
 public:
  /// \param call of the same operator
  static Traffic forward(const FsatAttention& op, const FsatInputs<T>& inputs, const View<T>& out,
                         const FsatSaved<T>& saved, const Rows& rows,
                         const detail::RanksCall& call);
};

/// The backward pass, for tensors of T. See `backward`.
template <class T>
class FsatBackwardCalls {
 public:
  /// \param call of the same operator
  static Traffic backward(const FsatAttention& op, const FsatInputs<T>& inputs,
                          const View<const T>& out, const FsatSaved<T>& saved,
                          const View<const T>& d_out, const FsatGrads<T>& grads, const Rows& rows,
                          const detail::RanksCall& call);
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/fsat/calls.inl.hpp"
#endif
