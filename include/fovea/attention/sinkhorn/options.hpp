// SPDX-License-Identifier: MIT
/// \file
/// The options of Sinkhorn attention, what it reads and gives, and their checks.
#pragma once

#include <array>
#include <concepts>
#include <limits>
#include <optional>
#include <string>

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/call/logit_scale.hpp"

FOVEA_NAMESPACE_BEGIN

/// The type of an option that Sinkhorn attention does not have. Giving it any value does not
/// compile.
struct NotCausalSorting {
  /// The only value.
  constexpr NotCausalSorting() = default;

  /// Does not compile, and says why.
  template <class X>
  // NOLINTNEXTLINE(google-explicit-constructor): `.causal = true` is to arrive here
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
  /// n, the number of times that rows and then columns of exp(R) are normalised; with 0 it is
  /// exp(R) itself.
  Index iterations = 8;
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// There is no causal option: giving one a value does not compile.
  NotCausalSorting causal = {};
};

/// What Sinkhorn attention reads.
template <class T>
struct SinkhornInputs {
  ViewMember<const T> q = {};  ///< [B, Hq, N, D]
  /// [B, Hk, N, D], where Hk divides Hq: query head h reads key head h / (Hq / Hk).
  ViewMember<const T> k = {};
  ViewMember<const T> v = {};  ///< [B, Hk, N, Dv]
  /// [B]: batch entry b has the rows [0, key_lengths[b]) of q, k and v, a multiple of the block.
  /// Empty: it has all N.
  IndexSpan key_lengths = {};
  /// [B, Hk, N / b, N / b]: the sorting logits R, of each block of queries (its row) and block of
  /// keys. They must be given.
  ViewMember<const T> sorting = {};

  /// Calls visit(name, tensor) for every View.
  template <class F>
  constexpr void for_each_tensor(F&& visit) const {
    visit("q", q);
    visit("k", k);
    visit("v", v);
    visit("sorting", sorting);
  }
};

/// The gradients of Sinkhorn attention.
template <class T>
struct SinkhornGrads {
  ViewMember<T> q = {};        ///< [B, Hq, N, D]
  ViewMember<T> k = {};        ///< [B, Hk, N, D]
  ViewMember<T> v = {};        ///< [B, Hk, N, Dv]
  ViewMember<T> sorting = {};  ///< [B, Hk, N / b, N / b]

  /// Calls visit(name, tensor) for every member.
  template <class F>
  constexpr void for_each_tensor(F&& visit) const {
    visit("q", q);
    visit("k", k);
    visit("v", v);
    visit("sorting", sorting);
  }
};

/// Checks q, k and v.
/// \throws std::invalid_argument
template <class T>
void check_sinkhorn_rows(const char* op, const SinkhornInputs<T>& inputs) {
  static_assert(std::floating_point<T>, "fovea: Sinkhorn attention takes float or double");
  check_inputs(op, inputs);
  detail::check_extent(op, "k", inputs.k.shape(), 2, inputs.q.rows(),
                       "the rows of q: queries and keys are cut into the same blocks");
}

/// Checks the options of a call of so many rows, and key lengths.
/// \tparam T the type of the arithmetic
/// \throws std::invalid_argument
template <class T>
void check_sinkhorn_options(const char* op, const SinkhornOptions& options, Index rows,
                            IndexSpan key_lengths) {
  detail::check_scale<T>(op, "scale", options.scale);
  if (options.block < 1 || rows % options.block != 0) {
    refuse(op, "block", std::to_string(options.block),
           "a divisor of the " + std::to_string(rows) + " rows of q");
  }
  if (options.iterations < 0) {
    refuse(op, "iterations", std::to_string(options.iterations), "at least 0");
  }
  for (std::size_t b = 0; b < key_lengths.size(); ++b) {
    if (key_lengths[b] % options.block == 0) continue;
    refuse(op, "key_lengths[" + std::to_string(b) + "]", std::to_string(key_lengths[b]),
           "a multiple of " + std::to_string(options.block) + ", the rows of a block");
  }
}

/// Checks the sorting logits.
/// \param queries, keys the numbers of blocks, which are the rows and columns of R
/// \throws std::invalid_argument
template <class T>
void check_sorting(const char* op, const SinkhornInputs<T>& inputs, Index queries, Index keys) {
  const Shape& r = inputs.sorting.shape();
  if (inputs.sorting.is_none() && inputs.k.batch() * inputs.k.heads() * queries == 0) return;
  if (inputs.sorting.is_none()) {
    refuse_missing(op, "sorting", "[B, Hk, N / block, N / block], the sorting logits");
  }
  detail::check_extent(op, "sorting", r, 0, inputs.k.batch(), "the batch of k");
  detail::check_extent(op, "sorting", r, 1, inputs.k.heads(), "the heads of k");
  detail::check_extent(op, "sorting", r, 2, queries, "the blocks of q");
  detail::check_extent(op, "sorting", r, 3, keys, "the blocks of k");
}

/// Checks the options and what Sinkhorn attention reads.
/// \throws std::invalid_argument
template <class T>
void check_sinkhorn_inputs(const char* op, const SinkhornOptions& options,
                           const SinkhornInputs<T>& inputs) {
  check_sinkhorn_rows(op, inputs);
  check_sinkhorn_options<T>(op, options, inputs.q.rows(), inputs.key_lengths);
  const Index blocks = inputs.q.rows() / options.block;
  check_sorting(op, inputs, blocks, blocks);
}

FOVEA_NAMESPACE_END
