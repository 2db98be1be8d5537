// SPDX-License-Identifier: MIT
/// \file
/// The checks and passes common to all softmax operators. They depend only on the scalar type, so
/// that a library can compile them once (kernels/unit.hpp).
#pragma once

#include <optional>

#include "fovea/attention/attention.hpp"
#include "fovea/attention/softmax/operator_ref.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/kernels/softmax/score_modifier.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

/// The checks and the forward pass, for tensors of T. SoftmaxOperator documents them.
template <class T>
class SoftmaxPasses {
 public:
  /// The modifier of logits.
  using Modifier = ScoreModifierArgs<Compute<T>>;

  /// Checks `forward`'s arguments.
  static void check(const SoftmaxOperatorRef& op, const SoftmaxInputs<T>& inputs,
                    const View<T>& out, const SoftmaxSaved<T>& saved);
  /// The same without check_sequences. \param sequence as in SoftmaxOperator::check_tensors
  static void check_tensors(const SoftmaxOperatorRef& op, const SoftmaxInputs<T>& inputs,
                            const View<T>& out, const SoftmaxSaved<T>& saved,
                            const std::optional<Index>& sequence);
  /// Checks the options and the inputs.
  static void check_read(const SoftmaxOperatorRef& op, const SoftmaxInputs<T>& inputs,
                         const std::optional<Index>& sequence);
  /// Checks that the options suit the sequences, and that the alignment of rows is unambiguous.
  /// \pre check_read passed
  static void check_sequences(const SoftmaxOperatorRef& op, const SoftmaxInputs<T>& inputs);

  /// Computes the forward pass. \pre check passed
  static void forward(const SoftmaxOperatorRef& op, const Modifier& modifier,
                      const SoftmaxInputs<T>& inputs, const View<T>& out,
                      const SoftmaxSaved<T>& saved, const ExecutorRef& executor);
  /// The same with kernels that are faster for narrow bands of common widths.
  static void band_forward(const SoftmaxOperatorRef& op, const Modifier& modifier,
                           const SoftmaxInputs<T>& inputs, const View<T>& out,
                           const SoftmaxSaved<T>& saved, const ExecutorRef& executor);
};

/// The backward pass, for tensors of T.
template <class T>
class SoftmaxBackwardPasses {
 public:
  /// The modifier of the logits, with its derivative.
  using Modifier = ScoreModifierArgs<T>;

  /// Checks `backward`'s arguments, except check_sequences and d_lse.
  static void check_tensors(const SoftmaxOperatorRef& op, const SoftmaxInputs<T>& inputs,
                            const View<const T>& out, const SoftmaxSaved<T>& saved,
                            const View<const T>& d_out, const SoftmaxGrads<T>& grads,
                            const std::optional<Index>& sequence);
  /// Checks the gradient with respect to lse. \pre check_tensors passed
  static void check_d_lse(const char* op, const SoftmaxInputs<T>& inputs,
                          const View<const T>& d_lse, const SoftmaxGrads<T>& grads);
  /// Computes the gradients. \pre they are checked
  static void backward(const SoftmaxOperatorRef& op, const Modifier& modifier,
                       const SoftmaxInputs<T>& inputs, const View<const T>& out,
                       const SoftmaxSaved<T>& saved, const View<const T>& d_out,
                       const SoftmaxGrads<T>& grads, const View<const T>& d_lse,
                       const ExecutorRef& executor);
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/softmax/passes.inl.hpp"
#endif
