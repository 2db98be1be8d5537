// SPDX-License-Identifier: MIT
/// \file
/// The options, inputs, saved tensors and gradients of Nystroem attention.
#pragma once

#include <concepts>
#include <optional>

#include "fovea/attention/call/grads.hpp"
#include "fovea/attention/call/inputs.hpp"

FOVEA_NAMESPACE_BEGIN

/// The inputs of Nystroem attention. Key lengths apply to queries, too. Packed sequences are not
/// supported.
template <std::floating_point T>
using NystroemInputs = LinearInputs<T>;

/// The gradients of Nystroem attention.
template <std::floating_point T>
using NystroemGrads = LinearGrads<T>;

/// What Nystroem attention saves. A member is written only if a tensor is given. If both landmark
/// tensors are given, the backward pass does not compute them again from all keys.
template <std::floating_point T>
struct NystroemSaved {
  ViewMember<T> lse = {};              ///< [B, Hq, Nq, 1]: as in SoftmaxSaved, over the m landmarks
  ViewMember<T> landmark_lse = {};     ///< [B, Hq, m, 1]: lse of the landmarks of q over all keys
  ViewMember<T> landmark_values = {};  ///< [B, Hq, m, Dv]: W, the output of these landmarks

  /// Whether both landmark tensors are given.
  bool has_landmarks() const { return !landmark_lse.empty() && !landmark_values.empty(); }
  /// The landmark tensors that a backward pass reads: both, or neither.
  NystroemSaved of_landmarks() const {
    return has_landmarks() ? NystroemSaved{{}, landmark_lse, landmark_values} : NystroemSaved{};
  }

  FOVEA_TENSORS(lse, landmark_lse, landmark_values)
};

/// The divisor of Z0, the first approximation of the inverse.
enum class NystroemScale {
  matrix,    ///< |A|_1 |A|_inf of each head's own matrix
  batch_max  ///< the largest column sum over all batches and heads, as in the authors' code
};

/// Options of NystroemAttention.
struct NystroemOptions {
  /// m, the number of landmarks, at least 1. It divides the number of rows of q and of k.
  Index landmarks = 64;
  /// The number of iterations, at least 0.
  Index iterations = 6;
  /// The divisor of the first approximation.
  NystroemScale first_scale = NystroemScale::matrix;
  /// Scale of the logits; the default is 1/sqrt(D), D^(-1/4) for queries and for keys.
  std::optional<double> scale = {};
};

FOVEA_NAMESPACE_END
