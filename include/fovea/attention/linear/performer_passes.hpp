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

template <class T>
class PerformerDecoderCore;

/// The operator's settings.
struct PerformerSettings {
  const char* name;               ///< the name in messages
  PerformerVisibility far_field;  ///< which keys rows see
};

/// The checks and the forward pass, for tensors of T. LinearOperator documents them.
template <class T>
class PerformerPasses {
  static_assert(std::floating_point<T>, "fovea: Performer attention supports float and double");

 public:
  /// The scalar of the tensors.
  using Scalar = T;
  /// The operator's settings.
  using Settings = PerformerSettings;
  /// The inputs.
  using Inputs = PerformerInputs<T>;
  /// What the forward pass saves: nothing.
  using Saved = LinearSaved<T>;
  /// The decoder.
  using DecoderCore = PerformerDecoderCore<T>;

  /// Checks the options and everything that both passes read.
  static void check_read(const Settings& op, const Inputs& inputs);
  /// Checks `forward`'s arguments.
  static void check(const Settings& op, const Inputs& inputs, const View<T>& out,
                    const Saved& saved);
  /// Computes the forward pass. \pre check passed
  static void forward(const Settings& op, const Inputs& inputs, const View<T>& out,
                      const Saved& saved, const ExecutorRef& executor);
};

/// The backward pass, for tensors of T.
template <class T>
class PerformerBackwardPasses {
 public:
  /// The scalar of the tensors.
  using Scalar = T;
  /// The operator's settings.
  using Settings = PerformerSettings;
  /// The inputs.
  using Inputs = PerformerInputs<T>;
  /// What the forward pass saved: nothing.
  using Saved = LinearSaved<T>;
  /// The gradients.
  using Grads = PerformerGrads<T>;

  /// Checks `backward`'s arguments.
  static void check(const Settings& op, const Inputs& inputs, const View<const T>& out,
                    const Saved& saved, const View<const T>& d_out, const Grads& grads);
  /// Computes the gradients. \pre check passed
  static void backward(const Settings& op, const Inputs& inputs, const Saved& saved,
                       const View<const T>& d_out, const Grads& grads, const ExecutorRef& executor);
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/linear/performer_passes.inl.hpp"
#endif
