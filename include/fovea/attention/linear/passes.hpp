// SPDX-License-Identifier: MIT
/// \file
/// The checks and the passes of linear attention and of the delta rule. They depend only on the
/// scalar type and the kind of terms, so that a library can compile them once (kernels/unit.hpp).
#pragma once

#include "fovea/attention/linear/terms.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

template <class Passes>
class LinearDecoderCore;

/// The settings of an operator without a near field.
/// \tparam C the type of the arithmetic
template <class C, bool kSums, bool kDelta>
struct LinearSettings {
  /// The terms of the far field.
  using Far = LinearTerms<C, kSums, kDelta>;
  /// There is no near field.
  static constexpr bool kHasNear = false;

  const char* name;  ///< the name in messages
  Far far_field;     ///< the terms of the far field

  /// The far field's weights, which include the division for a mean over maps.
  template <class T>
  FarWeights<C> weights(const LinearFamilyInputs<T>& inputs) const {
    return FarWeights<C>::alone(inputs.q.heads(), inputs.v.width(), far_field.share());
  }

  /// The multiply-adds of a forward pass: reading states for rows, and adding tokens to them.
  double products(const AttentionShape& s) const {
    const double rows = static_cast<double>(s.batch * s.query_heads * s.queries);
    return (rows + static_cast<double>(s.batch * s.key_heads * s.keys)) *
           far_field.products_of_row(s);
  }
};

/// The checks and the forward pass, for tensors of T. LinearOperator documents them.
template <class T, bool kSums, bool kDelta>
class LinearPasses {
 public:
  /// The scalar of the tensors.
  using Scalar = T;
  /// The operator's settings.
  using Settings = LinearSettings<Compute<T>, kSums, kDelta>;
  /// The inputs of any operator of the family.
  using Inputs = LinearFamilyInputs<T>;
  /// What the forward pass saves: nothing.
  using Saved = LinearSaved<T>;
  /// The decoder.
  using DecoderCore = LinearDecoderCore<LinearPasses>;
  /// The near field's decoder: none.
  using NearDecoder = NoNearField;

  /// \throws std::invalid_argument if the tau of signed_floor is not in (0, 1]
  static void check_options(const Settings& op);
  /// Checks the options and everything that both passes read.
  static void check_read(const Settings& op, const LinearFamilyInputs<T>& inputs);
  /// Checks `forward`'s arguments.
  static void check(const Settings& op, const LinearFamilyInputs<T>& inputs, const View<T>& out,
                    const Saved& saved);
  /// Computes the forward pass. \pre check passed
  static void forward(const Settings& op, const LinearFamilyInputs<T>& inputs, const View<T>& out,
                      const Saved& saved, const ExecutorRef& executor);
};

/// The backward pass, for tensors of T.
template <class T, bool kSums, bool kDelta>
class LinearBackwardPasses {
 public:
  /// The scalar of the tensors.
  using Scalar = T;
  /// The operator's settings.
  using Settings = LinearSettings<T, kSums, kDelta>;
  /// The inputs of any operator of the family.
  using Inputs = LinearFamilyInputs<T>;
  /// What the forward pass saved: nothing.
  using Saved = LinearSaved<T>;
  /// The gradients of any operator of the family.
  using Grads = LinearFamilyGrads<T>;

  /// Checks `backward`'s arguments.
  static void check(const Settings& op, const LinearFamilyInputs<T>& inputs,
                    const View<const T>& out, const LinearSaved<T>& saved,
                    const View<const T>& d_out, const LinearFamilyGrads<T>& grads);
  /// Computes the gradients. \pre check passed
  static void backward(const Settings& op, const LinearFamilyInputs<T>& inputs,
                       const LinearSaved<T>& saved, const View<const T>& d_out,
                       const LinearFamilyGrads<T>& grads, const ExecutorRef& executor);
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/linear/passes.inl.hpp"
#endif
