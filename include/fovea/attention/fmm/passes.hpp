// SPDX-License-Identifier: MIT
/// \file
/// The checks and the passes of FMM attention. They depend only on the scalar type and the kinds of
/// terms, so that a library can compile them once (kernels/unit.hpp).
#pragma once

#include <concepts>
#include <type_traits>

#include "fovea/attention/fmm/settings.hpp"

FOVEA_NAMESPACE_BEGIN

/// The checks and the forward pass, for tensors of T. LinearOperator documents them.
template <class T, bool kSums, bool kDelta>
class FmmPasses {
 public:
  /// The scalar of the tensors.
  using Scalar = T;
  /// The type of the arithmetic.
  using C = Compute<T>;
  /// The operator's settings.
  using Settings = FmmSettings<C, kSums, kDelta>;
  /// What the forward pass saves: the near field's output and lse.
  using Saved = FmmSaved<T>;
  /// The near field's decoder.
  using NearDecoder =
      Decoder<std::conditional_t<std::same_as<T, C>, LocalAttention, WidenedNear>, C>;

  /// \throws std::invalid_argument if a side of the band is negative, the scale is not finite in C,
  /// the tau of signed_floor is not in (0, 1], or an operator with a delta rule is not causal
  static void check_options(const Settings& op);
  /// Checks the options and everything that both passes read.
  static void check_read(const Settings& op, const LinearFamilyInputs<T>& inputs);
  /// Checks `forward`'s arguments.
  static void check(const Settings& op, const LinearFamilyInputs<T>& inputs, const View<T>& out,
                    const Saved& saved);
  /// Computes the forward pass. \pre check passed
  static void forward(const Settings& op, const LinearFamilyInputs<T>& inputs, const View<T>& out,
                      const Saved& saved, const ExecutorRef& executor);
  /// Its scratch memory in bytes.
  static Index workspace_bytes(const Settings& op, const AttentionShape& shape, Index workers);
  /// Computes the near field of a decoder's step, `rows` rows of all heads, into `out`, or, if that
  /// has 16 bits, into `wide` [B, Hq, rows, Dv padded].
  static void step_near(NearDecoder& near_field, const LinearFamilyInputs<T>& inputs,
                        const View<T>& out, const Saved& saved, Index rows, C* wide,
                        const ExecutorRef& executor);
};

/// The backward pass, for tensors of T.
template <class T, bool kSums, bool kDelta>
class FmmBackwardPasses {
 public:
  /// The scalar of the tensors.
  using Scalar = T;
  /// The operator's settings.
  using Settings = FmmSettings<T, kSums, kDelta>;
  /// What the forward pass saved: the near field's output and lse, or nothing.
  using Saved = FmmSaved<T>;

  /// Checks `backward`'s arguments.
  static void check(const Settings& op, const LinearFamilyInputs<T>& inputs,
                    const View<const T>& out, const FmmSaved<T>& saved, const View<const T>& d_out,
                    const LinearFamilyGrads<T>& grads);
  /// Computes the gradients. \pre check passed
  static void backward(const Settings& op, const LinearFamilyInputs<T>& inputs,
                       const FmmSaved<T>& saved, const View<const T>& d_out,
                       const LinearFamilyGrads<T>& grads, const ExecutorRef& executor);
  /// Its scratch memory in bytes.
  static Index workspace_bytes(const Settings& op, const AttentionShape& shape, Index workers);
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/fmm/passes.inl.hpp"
#endif
