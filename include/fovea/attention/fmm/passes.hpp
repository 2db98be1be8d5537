// SPDX-License-Identifier: MIT
/// \file
/// The checks and the passes of FMM attention. They depend only on the scalar type and the kinds of
/// terms, so that a library can compile them once (kernels/unit.hpp).
#pragma once

#include <algorithm>
#include <concepts>
#include <optional>
#include <type_traits>

#include "fovea/attention/fmm/blend.hpp"
#include "fovea/attention/linear/passes.hpp"
#include "fovea/attention/local.hpp"

FOVEA_NAMESPACE_BEGIN

/// The keys of the near field: the query's own position, `left` keys before it and `right` after
/// it.
struct Band {
  Index left = 0;   ///< number of keys before the query, at least 0
  Index right = 0;  ///< number of keys after the query, at least 0

  /// The band |i - j| < k, as in the authors' code: 2 k - 1 keys, of which a causal operator shows
  /// k.
  static constexpr Band half_width(Index k) { return {k - 1, k - 1}; }

  /// A band of k keys in all; if k is even, with one more before the query than after it.
  static constexpr Band total(Index k) { return {k / 2, (k + 1) / 2 - 1}; }

  /// A band of k keys in all, the last of which is the query's own position.
  static constexpr Band causal_total(Index k) { return {k - 1, 0}; }
};

/// The near field of a decoder for 16-bit tensors, whose ring stores them in the type of the
/// arithmetic: its rows have the same bits as those of NearBlocks before rounding.
struct WidenedNear : LocalAttention {
  /// Rows are summed like 16-bit rows (SoftmaxBlockArgs::in_tiles).
  static constexpr bool kSumsInTiles = true;
  /// The same operator.
  // NOLINTNEXTLINE(google-explicit-constructor): it differs only in how it is computed
  WidenedNear(const LocalAttention& near_field) : LocalAttention(near_field) {}
};

/// The settings of an operator with a near field.
/// \tparam C the type of the arithmetic
template <class C, bool kSums, bool kDelta>
struct FmmSettings : LinearSettings<C, kSums, kDelta> {
  /// There is a near field.
  static constexpr bool kHasNear = true;

  Band band;                    ///< the keys of the near field, before causality hides some
  std::optional<double> scale;  ///< scale of the near field's logits
  bool normalise_rows;          ///< whether a row is divided by the sum of its weights

  /// The near field alone, as an operator.
  LocalAttention near_field() const {
    return LocalAttention({.left = band.left,
                           .right = this->far_field.causal ? 0 : band.right,
                           .scale = scale,
                           .alignment = this->far_field.alignment});
  }

  /// The blend of the near and the far field by the inputs' logits, which must outlive it.
  template <class T>
  FmmBlend<T> blend(const LinearFamilyInputs<T>& inputs) const {
    return {inputs, this->far_field.row_sum(), this->far_field.share(), normalise_rows};
  }
  /// The weights of the near and the far field.
  template <class T>
  FarWeights<C> weights(const LinearFamilyInputs<T>& inputs) const {
    return blend(inputs).weights();
  }

  /// The multiply-adds of a forward pass: the far field's, and those of the near field's rows over
  /// their bands.
  double products(const AttentionShape& s) const {
    const LocalOptions keys = near_field().options;
    return LinearSettings<C, kSums, kDelta>::products(s) +
           static_cast<double>(s.batch * s.query_heads * s.queries) *
               static_cast<double>(s.width + s.value_width) *
               (std::min)(static_cast<double>(s.keys),
                          1.0 + static_cast<double>(keys.left) + static_cast<double>(keys.right));
  }
};

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
  /// The inputs of any operator of the family.
  using Inputs = LinearFamilyInputs<T>;
  /// What the forward pass saves: the near field's output and lse.
  using Saved = FmmSaved<T>;
  /// The decoder.
  using DecoderCore = LinearDecoderCore<FmmPasses>;
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
  /// The inputs of any operator of the family.
  using Inputs = LinearFamilyInputs<T>;
  /// What the forward pass saved: the near field's output and lse, or nothing.
  using Saved = FmmSaved<T>;
  /// The gradients of any operator of the family.
  using Grads = LinearFamilyGrads<T>;

  /// Checks `backward`'s arguments.
  static void check(const Settings& op, const LinearFamilyInputs<T>& inputs,
                    const View<const T>& out, const FmmSaved<T>& saved, const View<const T>& d_out,
                    const LinearFamilyGrads<T>& grads);
  /// Computes the gradients. \pre check passed
  static void backward(const Settings& op, const LinearFamilyInputs<T>& inputs,
                       const FmmSaved<T>& saved, const View<const T>& d_out,
                       const LinearFamilyGrads<T>& grads, const ExecutorRef& executor);
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/fmm/passes.inl.hpp"
#endif
