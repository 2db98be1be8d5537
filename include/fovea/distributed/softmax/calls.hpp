// SPDX-License-Identifier: MIT
/// \file
/// The calls of softmax attention across ranks, which depend only on the scalar type, so that a
/// library can compile them once (kernels/unit.hpp).
#pragma once

#include "fovea/distributed/messages/call.hpp"
#include "fovea/distributed/softmax/call.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The forward pass, for tensors of T. See `forward`.
template <class T>
class SoftmaxCalls {
 public:
  /// The modifier of the logits.
  using Modifier = ScoreModifierArgs<Compute<T>>;

  /// \param call of the same operator
  static CommStats forward(const SoftmaxOperatorRef& op, const Modifier& modifier,
                           const SoftmaxInputs<T>& inputs, const View<T>& out,
                           const SoftmaxSaved<T>& saved, const Sharding& rows,
                           const detail::CollectiveCall& call);
};

/// The backward pass, for tensors of T. See `backward`.
template <class T>
class SoftmaxBackwardCalls {
 public:
  /// The modifier of the logits, with its derivative.
  using Modifier = ScoreModifierArgs<T>;

  /// \param call of the same operator
  static CommStats backward(const SoftmaxOperatorRef& op, const Modifier& modifier,
                            const SoftmaxInputs<T>& inputs, const View<const T>& out,
                            const SoftmaxSaved<T>& saved, const SoftmaxOutGrads<T>& d_out,
                            const SoftmaxGrads<T>& grads, const Sharding& rows,
                            const detail::CollectiveCall& call);
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/softmax/calls.inl.hpp"
#endif
