// SPDX-License-Identifier: MIT
/// \file
/// What Nystroem attention reads, saves and gives gradients of, and its options.
#pragma once

#include <concepts>
#include <optional>

#include "fovea/attention/call/grads.hpp"
#include "fovea/attention/call/inputs.hpp"

FOVEA_NAMESPACE_BEGIN

/// What Nystroem attention reads. With key lengths the tokens of a sequence, its queries too, are
/// those before the length. Sequences may not be packed.
template <std::floating_point T>
using NystroemInputs = LinearInputs<T>;

/// The gradients of Nystroem attention.
template <std::floating_point T>
using NystroemGrads = LinearGrads<T>;

/// What Nystroem attention saves. A member is written only if it is given a tensor. If both of the
/// landmarks are given, the backward pass does not read all keys for them again.
template <std::floating_point T>
struct NystroemSaved {
  ViewMember<T> lse = {};              ///< [B, Hq, Nq, 1]: as in SoftmaxSaved, over the m landmarks
  ViewMember<T> landmark_lse = {};     ///< [B, Hq, m, 1]: of the landmarks of q, over all keys
  ViewMember<T> landmark_values = {};  ///< [B, Hq, m, Dv]: what the landmarks of q attend to

  /// Whether both tensors of the landmarks are given.
  bool has_landmarks() const { return !landmark_lse.empty() && !landmark_values.empty(); }
  /// What a backward pass reads of the landmarks: both tensors, or neither.
  NystroemSaved of_landmarks() const {
    return has_landmarks() ? NystroemSaved{{}, landmark_lse, landmark_values} : NystroemSaved{};
  }

  /// Calls visit(name, tensor) for every member.
  template <class F>
  constexpr void for_each_tensor(F&& visit) const {
    visit("lse", lse);
    visit("landmark_lse", landmark_lse);
    visit("landmark_values", landmark_values);
  }
};

/// By which number the first approximation of the inverse is divided.
enum class NystroemScale {
  matrix,    ///< the norms of that matrix alone, |A|_1 |A|_inf
  batch_max  ///< the largest column sum over all batches and heads, as in the authors' code
};

/// Options of NystroemAttention.
struct NystroemOptions {
  /// m, the number of landmarks, at least 1. It divides the number of rows of q and of k.
  Index landmarks = 64;
  /// The number of steps towards the inverse, at least 0.
  Index iterations = 6;
  /// What the steps begin with.
  NystroemScale first_scale = NystroemScale::matrix;
  /// Scale of the logits; the default is 1/sqrt(D), D^(-1/4) for queries and for keys.
  std::optional<double> scale = {};
};

FOVEA_NAMESPACE_END
