// SPDX-License-Identifier: MIT
/// \file
/// What happens to a logit between the product and the softmax, and to a weight after it: the
/// options of softmax attention (MATHS.md, section 2) for one head, as the kernels read them.
#pragma once

#include <cstdint>

#include "fovea/core/philox.hpp"
#include "fovea/simd/matrix.hpp"

FOVEA_NAMESPACE_BEGIN

/// Dropout of weights: (i, j) is kept if uniform_draw<T>(seed, batch, head, i, j) >= probability,
/// i and j its positions, and then multiplied by 1 / (1 - probability).
struct DropoutMap {
  double probability = 0;  // 0: none
  std::uint64_t seed = 0;
  Index batch = 0;
  Index head = 0;
};

/// Under ALiBi weights fall off to where their products with values are subnormal, which is slow.
/// Lifted so far, only values below 2^-12 meet that; values above max / (4096 Nk) overflow.
inline constexpr int kAlibiLift = 12;

/// z = scale <q, k>; z = cap tanh(z / cap); s = z + bias - slope |i - j|; hidden where the mask is
/// false or the bias -inf.
template <class T>
struct ScoreMap {
  T soft_cap = 0;           // 0: none
  T alibi_slope = 0;        // 0: none
  Matrix<const T> bias;     // [Nq, Nk], strides 0 where it is broadcast; or no data
  Matrix<const bool> mask;  // the same
  DropoutMap dropout;
  /// Weights are kept times 2 to this power, 0 or kAlibiLift: the same for all heads of a call.
  int weight_lift = 0;

  /// Whether a pair within the pattern can be hidden.
  constexpr bool hides() const { return bias.data != nullptr || mask.data != nullptr; }
  /// Whether anything happens to logits.
  constexpr bool changes_logits() const { return soft_cap != 0 || alibi_slope != 0 || hides(); }
  constexpr bool drops() const { return dropout.probability > 0; }
  constexpr bool is_identity() const { return !changes_logits() && !drops(); }
};

FOVEA_NAMESPACE_END
