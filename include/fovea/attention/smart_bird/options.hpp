// SPDX-License-Identifier: MIT
/// \file
/// Options of Smart Bird attention.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "fovea/kernels/sketch/select.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of SmartBirdAttention.
struct SmartBirdOptions {
  /// K: the keys that each row and head keeps, or all that are visible, if those are fewer.
  Index keys_per_row = 20;
  /// How the sketch's weights become sampling weights.
  SamplingPolicy policy = SamplingPolicy::squared_inverse_log;
  /// Of the draws: `uniform_draw<T>(seed, batch, head, i, j)` of fovea/core/philox.hpp, where i and
  /// j are positions, and batch is the number of the sequence.
  std::uint64_t seed = 0;
  /// Keys after the query's position are invisible, to sketch and attention.
  bool causal = false;
  /// Position of query row 0 if Nq != Nk; by default the queries end where the keys end.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// Of the attention's logits; 1 / sqrt(D) if not set.
  std::optional<double> scale = {};
  /// Of the sketch's logits; 1 / sqrt(d) if not set.
  std::optional<double> sketch_scale = {};

  /// The places that a row's list needs: no more than there are keys.
  Index places(Index keys) const { return (std::min)(keys_per_row, keys); }
};

FOVEA_NAMESPACE_END
