// SPDX-License-Identifier: MIT
/// \file
/// The calls of linear, delta-rule and FMM attention across ranks. They depend only on the scalar
/// type and the kinds of terms, so that a library can compile them once (kernels/unit.hpp).
#pragma once

#include "fovea/attention/linear/passes.hpp"
#include "fovea/distributed/messages/call.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The forward pass. See `forward`.
/// \tparam Passes a LinearPasses or FmmPasses of float or double
template <class Passes>
class LinearCalls {
 public:
  /// The tensors' scalar type.
  using T = typename Passes::Scalar;
  /// The settings read from the operator.
  using Settings = typename Passes::Settings;
  /// The state that the pass saves.
  using Saved = typename Passes::Saved;

  /// \param call of the same operator
  static CommStats forward(const Settings& op, const LinearFamilyInputs<T>& inputs,
                           const View<T>& out, const Saved& saved, const Sharding& rows,
                           const detail::CollectiveCall& call);
};

/// The backward pass. See `backward`.
/// \tparam Passes a LinearBackwardPasses or FmmBackwardPasses
template <class Passes>
class LinearBackwardCalls {
 public:
  /// The tensors' scalar type.
  using T = typename Passes::Scalar;
  /// The settings read from the operator.
  using Settings = typename Passes::Settings;
  /// The forward pass's saved state.
  using Saved = typename Passes::Saved;

  /// \param call of the same operator
  static CommStats backward(const Settings& op, const LinearFamilyInputs<T>& inputs,
                            const View<const T>& out, const Saved& saved,
                            const View<const T>& d_out, const LinearFamilyGrads<T>& grads,
                            const Sharding& rows, const detail::CollectiveCall& call);
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/linear/calls.inl.hpp"
#endif
