// SPDX-License-Identifier: MIT
/// \file
/// The checks and the passes of FMM attention. They depend on the scalar type and on the kinds of
/// terms alone, so that a library can compile them once (kernels/unit.hpp).
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
  /// What is read of an operator.
  using Settings = FmmSettings<C, kSums, kDelta>;
  /// What the forward pass saves: the output and the lse of the near field.
  using Saved = FmmSaved<T>;
  /// What decodes the near field.
  using NearDecoder =
      Decoder<std::conditional_t<std::same_as<T, C>, LocalAttention, WidenedNear>, C>;

  /// \throws std::invalid_argument if a side of the band is negative, the scale is not finite in C,
  /// the tau of signed_floor is not in (0, 1], or an operator with a delta rule is not causal
  static void check_options(const Settings& op);
  /// Checks the options and everything that both passes read.
  static void check_read(const Settings& op, const LinearFamilyInputs<T>& inputs);
  /// Checks all that `forward` takes.
  static void check(const Settings& op, const LinearFamilyInputs<T>& inputs, const View<T>& out,
                    const Saved& saved);
  /// Computes the forward pass. \pre check passed
  static void forward(const Settings& op, const LinearFamilyInputs<T>& inputs, const View<T>& out,
                      const Saved& saved, const ExecutorRef& executor);
  /// Bytes of scratch memory that it takes.
  static Index workspace_bytes(const Settings& op, const AttentionShape& shape, Index workers);
  /// Computes the near field of a step of a decoder, of `rows` rows of all heads, into `out`, or,
  /// if that has 16 bits, into `wide` [B, Hq, rows, Dv padded].
  static void step_near(NearDecoder& near, const LinearFamilyInputs<T>& inputs, const View<T>& out,
                        const Saved& saved, Index rows, C* wide, const ExecutorRef& executor);
};

/// The backward pass, for tensors of T.
template <class T, bool kSums, bool kDelta>
class FmmBackwardPasses {
 public:
  /// The scalar of the tensors.
  using Scalar = T;
  /// What is read of an operator.
  using Settings = FmmSettings<T, kSums, kDelta>;
  /// What the forward pass saved: the output and the lse of the near field, or nothing.
  using Saved = FmmSaved<T>;

  /// Checks all that `backward` takes.
  static void check(const Settings& op, const LinearFamilyInputs<T>& inputs,
                    const View<const T>& out, const FmmSaved<T>& saved, const View<const T>& d_out,
                    const LinearFamilyGrads<T>& grads);
  /// Computes the gradients. \pre check passed
  static void backward(const Settings& op, const LinearFamilyInputs<T>& inputs,
                       const FmmSaved<T>& saved, const View<const T>& d_out,
                       const LinearFamilyGrads<T>& grads, const ExecutorRef& executor);
  /// Bytes of scratch memory that it takes.
  static Index workspace_bytes(const Settings& op, const AttentionShape& shape, Index workers);
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/fmm/passes.inl.hpp"
#endif
