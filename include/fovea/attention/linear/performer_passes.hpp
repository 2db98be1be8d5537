// SPDX-License-Identifier: MIT
/// \file
/// The checks and the passes of Performer attention. They depend only on the scalar type, so that a
/// library can compile them once (kernels/unit.hpp).
#pragma once

#include <concepts>

#include "fovea/attention/attention.hpp"
#include "fovea/attention/linear/performer_visibility.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

/// The operator's settings.
struct PerformerSettings {
  const char* name;                ///< the name in messages
  PerformerVisibility visibility;  ///< which keys rows see
};

/// The checks and the passes, for tensors of T. PerformerAttention documents them.
template <class T>
class PerformerPasses {
  static_assert(std::floating_point<T>, "fovea: Performer attention supports float and double");

 public:
  /// Checks `forward`'s arguments.
  static void check(const PerformerSettings& op, const PerformerInputs<T>& inputs,
                    const View<T>& out);
  /// Checks `backward`'s arguments.
  static void check_backward(const PerformerSettings& op, const PerformerInputs<T>& inputs,
                             const View<const T>& out, const View<const T>& d_out,
                             const PerformerGrads<T>& grads);
  /// Computes the forward pass. \pre check passed
  static void forward(const PerformerSettings& op, const PerformerInputs<T>& inputs,
                      const View<T>& out, const ExecutorRef& executor);
  /// Computes the gradients. \pre check_backward passed
  static void backward(const PerformerSettings& op, const PerformerInputs<T>& inputs,
                       const View<const T>& d_out, const PerformerGrads<T>& grads,
                       const ExecutorRef& executor);
  /// Bytes of scratch memory for `forward`.
  static Index workspace_bytes(const PerformerSettings& op, const PerformerShape& shape,
                               Index workers);
  /// Bytes of scratch memory for `backward`.
  static Index backward_workspace_bytes(const PerformerSettings& op, const PerformerShape& shape,
                                        Index workers);
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/linear/performer_passes.inl.hpp"
#endif
