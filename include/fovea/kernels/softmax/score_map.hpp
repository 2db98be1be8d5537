// SPDX-License-Identifier: MIT
/// \file
/// Modifications of a logit between product and softmax, and of a weight after it: the options of
/// softmax attention (MATHS.md, section 2) for one head, for kernels.
#pragma once

#include <cstdint>

#include "fovea/core/philox.hpp"
#include "fovea/kernels/softmax/score_modifier.hpp"
#include "fovea/simd/matrix.hpp"

FOVEA_NAMESPACE_BEGIN

/// Dropout of weights. The weight of the pair (i, j) of positions is kept if uniform_draw<T>(seed,
/// batch, head, i, j) >= probability, and then multiplied by 1 / (1 - probability).
struct DropoutMap {
  double probability = 0;  ///< probability that a weight is dropped; 0: no dropout
  std::uint64_t seed = 0;  ///< seed of the draws
  Index batch = 0;         ///< number of the sequence
  Index head = 0;          ///< number of the query head
};

/// The exponent bias of weights under ALiBi. Without it, small weights have subnormal products with
/// values, which are slow. With it, this happens only for values below 2^-12; values above max /
/// (4096 Nk) overflow.
inline constexpr int kAlibiLift = 12;

/// The options of one query head: z = scale <q, k>; z = cap tanh(z / cap); z = modifier(z); s = z +
/// bias - slope |i - j|. A pair is hidden where the mask is false or the bias -infinity.
template <class T>
struct ScoreMap {
  T soft_cap = 0;                 ///< the soft cap; 0: none
  ScoreModifierArgs<T> modifier;  ///< a user's function; it receives dropout.batch and dropout.head
  T alibi_slope = 0;              ///< the ALiBi slope of the head; 0: none
  /// [Nq, Nk], with strides of 0 where it is broadcast. Null data: none.
  Matrix<const T> bias;
  /// [Nq, Nk], with strides of 0 where it is broadcast. Null data: none.
  Matrix<const bool> mask;
  DropoutMap dropout;  ///< dropout of the weights
  /// The exponent bias: weights are multiplied by 2 to this power, 0 or kAlibiLift, the same for
  /// all heads of a call.
  int exponent_bias = 0;

  /// Whether a pair visible by the pattern can be hidden.
  constexpr bool hides() const { return bias.data != nullptr || mask.data != nullptr; }
  /// Whether logits are modified after scaling.
  constexpr bool changes_logits() const {
    return soft_cap != 0 || modifier.is_used() || alibi_slope != 0 || hides();
  }
  /// Whether weights can be dropped.
  constexpr bool drops() const { return dropout.probability > 0; }
  /// Whether logits and weights are unmodified.
  constexpr bool is_identity() const { return !changes_logits() && !drops(); }
};

FOVEA_NAMESPACE_END
