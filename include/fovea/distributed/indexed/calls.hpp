// SPDX-License-Identifier: MIT
/// \file
/// The distributed calls of attention to gathered keys, which depend only on the scalar type, so
/// that a library can compile them once (kernels/unit.hpp).
#pragma once

#include "fovea/attention/indexed.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The forward pass, for tensors of T. See `forward`.
template <class T>
class IndexedCalls {
 public:
  /// \param call of the same operator
  static Traffic forward(const IndexedAttention& op, const IndexedInputs<T>& inputs,
                         const View<T>& out, const IndexedSaved<T>& saved, const Rows& rows,
                         const detail::RanksCall& call);
};

/// The backward pass, for tensors of T. See `backward`.
template <class T>
class IndexedBackwardCalls {
 public:
  /// \param call of the same operator
  static Traffic backward(const IndexedAttention& op, const IndexedInputs<T>& inputs,
                          const View<const T>& out, const IndexedSaved<T>& saved,
                          const View<const T>& d_out, const IndexedGrads<T>& grads,
                          const Rows& rows, const detail::RanksCall& call);
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/indexed/calls.inl.hpp"
#endif
