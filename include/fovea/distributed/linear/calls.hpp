// SPDX-License-Identifier: MIT
/// \file
/// The calls of linear, delta-rule and FMM attention over ranks. They depend on the scalar type and
/// on the kinds of terms alone, so that a library can compile them once (kernels/unit.hpp).
#pragma once

#include "fovea/attention/linear/passes.hpp"
#include "fovea/distributed/messages/call.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The forward pass. `forward` documents it.
/// \tparam Passes a LinearPasses or FmmPasses of float or double
template <class Passes>
class LinearCalls {
 public:
  /// The scalar of the tensors.
  using T = typename Passes::Scalar;
  /// What is read of the operator.
  using Settings = typename Passes::Settings;
  /// What the pass saves.
  using Saved = typename Passes::Saved;

  /// \param call of the same operator
  static Traffic forward(const Settings& op, const LinearFamilyInputs<T>& inputs,
                         const View<T>& out, const Saved& saved, const Rows& rows,
                         const detail::RanksCall& call);
};

/// The backward pass. `backward` documents it.
/// \tparam Passes a LinearBackwardPasses or FmmBackwardPasses
template <class Passes>
class LinearBackwardCalls {
 public:
  /// The scalar of the tensors.
  using T = typename Passes::Scalar;
  /// What is read of the operator.
  using Settings = typename Passes::Settings;
  /// What the forward pass saved.
  using Saved = typename Passes::Saved;

  /// \param call of the same operator
  static Traffic backward(const Settings& op, const LinearFamilyInputs<T>& inputs,
                          const View<const T>& out, const Saved& saved, const View<const T>& d_out,
                          const LinearFamilyGrads<T>& grads, const Rows& rows,
                          const detail::RanksCall& call);
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/linear/calls.inl.hpp"
#endif
