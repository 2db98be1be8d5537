// SPDX-License-Identifier: MIT
/// \file
/// The options, inputs and gradients of Sinkhorn attention.
#pragma once

#include <concepts>
#include <optional>
#include <type_traits>

#include "fovea/core/index_span.hpp"
#include "fovea/core/members.hpp"

FOVEA_NAMESPACE_BEGIN

/// The type of an option that Sinkhorn attention does not have: setting it is a compile error.
struct NotCausalSorting {
  /// The only value.
  constexpr NotCausalSorting() = default;

  /// A compile error with an explanation.
  template <class X>
  // NOLINTNEXTLINE(google-explicit-constructor): so that `.causal = true` selects it
  requires(!std::same_as<X, NotCausalSorting>) constexpr NotCausalSorting(const X& /*flag*/) {
    static_assert(!std::same_as<X, X>,
                  "SinkhornAttention is not causal: a sorted block is a sum of blocks of the whole "
                  "sequence, so there is no causal option");
  }
};

/// Options of SinkhornAttention.
struct SinkhornOptions {
  /// b, the rows of a block: a divisor of N.
  Index block = 64;
  /// n, the number of times that the rows and then the columns of exp(R) are normalised; 0 uses
  /// exp(R) itself.
  Index iterations = 8;
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// There is no causal option: setting it is a compile error.
  NotCausalSorting causal = {};
};

/// The inputs of Sinkhorn attention.
template <class T>
struct SinkhornInputs {
  static_assert(std::is_floating_point_v<T>, "fovea: Sinkhorn attention supports float and double");

  ViewMember<const T> q = {};  ///< [B, Hq, N, D]
  /// [B, Hk, N, D], where Hk divides Hq: query head h reads key head h / (Hq / Hk).
  ViewMember<const T> k = {};
  ViewMember<const T> v = {};  ///< [B, Hk, N, Dv]
  /// [B]: batch entry b has the rows [0, key_lengths[b]) of q, k and v, a multiple of the block.
  /// Empty: it has all N.
  IndexSpan key_lengths = {};
  /// [B, Hk, N / b, N / b]: the sorting logits R of blocks of queries (rows) and blocks of keys;
  /// required.
  ViewMember<const T> sorting = {};

  FOVEA_TENSORS(q, k, v, sorting)
};

/// The gradients of Sinkhorn attention.
template <class T>
struct SinkhornGrads {
  ViewMember<T> q = {};        ///< [B, Hq, N, D]
  ViewMember<T> k = {};        ///< [B, Hk, N, D]
  ViewMember<T> v = {};        ///< [B, Hk, N, Dv]
  ViewMember<T> sorting = {};  ///< [B, Hk, N / b, N / b]

  FOVEA_TENSORS(q, k, v, sorting)
};

FOVEA_NAMESPACE_END
