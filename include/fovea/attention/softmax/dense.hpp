// SPDX-License-Identifier: MIT
/// \file
/// Full attention as a step of another operator, which allocates the memory of all its steps before
/// the first one begins.
#pragma once

#include "fovea/attention/softmax/backward.hpp"
#include "fovea/attention/softmax/forward.hpp"
#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// The pattern of full attention: every head sees every key.
struct EveryKey {
  /// All heads have the same pattern.
  static Index pattern_period(Index /*heads*/) { return 1; }
  /// The pattern that shows every key.
  static Dense pattern(Index /*head*/, const SequenceShape& /*shape*/) { return {}; }
};

/// The common part of both passes of full attention.
template <class T>
struct DenseCall {
  SoftmaxCall<T> call;  ///< the inputs, and the scale
  HeadPlans plans;      ///< of EveryKey

  /// \param inputs checked; what they view must outlive this object
  DenseCall(const SoftmaxInputs<T>& inputs, T scale)
      : call(inputs, {.scale = static_cast<double>(scale)}), plans(EveryKey{}, call) {}
  DenseCall(const DenseCall&) = delete;
  DenseCall& operator=(const DenseCall&) = delete;
};

/// The forward pass.
template <class T>
class DenseForward {
 public:
  /// \param inputs checked; what they view must outlive this object
  /// \param out, lse written
  DenseForward(const SoftmaxInputs<T>& inputs, T scale, const View<T>& out, const View<T>& lse)
      : call_(inputs, scale), pass_(call_.call, call_.plans, out, {lse}) {}

  /// Takes the memory. \throws std::bad_alloc
  void reserve(const ExecutorRef& executor) { pass_.reserve(executor); }
  /// Computes out and lse. \pre reserve(executor) was called, once
  void compute(const ExecutorRef& executor) { pass_.compute(executor); }

 private:
  DenseCall<T> call_;
  SoftmaxForward<T> pass_;
};

/// The backward pass.
template <class T>
class DenseBackward {
 public:
  /// \param inputs checked; what they view must outlive this object
  /// \param out, lse as the forward pass writes them
  /// \param grads those without a tensor are not computed
  DenseBackward(const SoftmaxInputs<T>& inputs, T scale, const View<const T>& out,
                const View<T>& lse, const View<const T>& d_out, const SoftmaxGrads<T>& grads)
      : call_(inputs, scale), pass_(call_.call, call_.plans, out, {lse}, d_out, grads) {}

  /// Allocates the memory that does not depend on lse. \throws std::bad_alloc
  void take_scratch(const ExecutorRef& executor) { pass_.take_scratch(executor); }
  /// Allocates the rest. \pre lse holds what the forward pass wrote \throws std::bad_alloc
  void look_at_lse(const ExecutorRef& executor) { pass_.look_at_lse(executor); }
  /// Writes the gradients. \pre take_scratch(executor) and look_at_lse(executor) were called, once
  void compute(const ExecutorRef& executor) { pass_.compute(executor); }

 private:
  DenseCall<T> call_;
  SoftmaxBackward<T> pass_;
};

FOVEA_NAMESPACE_END
