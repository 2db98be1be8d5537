// SPDX-License-Identifier: MIT
/// \file
/// The options of Smart Bird attention (Wu et al. 2021; MATHS.md, section 5).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "fovea/kernels/sketch/select.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// How a row's keys are found. All methods find the same keys.
enum class SketchSearch : std::uint8_t {
  automatic,   ///< the method that is expected to be faster
  exhaustive,  ///< by the logits of all keys
  blocks,      ///< by bounds of blocks of keys, if d is at most 8 and there are 1024 keys
};

/// Options of SmartBirdAttention.
struct SmartBirdOptions {
  /// K, at least 1: the number of keys kept for each row and head. If fewer are visible, all are
  /// kept.
  Index keys_per_row = 20;
  /// How the sketch's weights become sampling weights; the default is eq. 2 of the paper.
  SamplingPolicy policy = SamplingPolicy::squared_inverse_log;
  /// Seed of the draws `uniform_draw<T>(seed, batch, head, i, j)` (fovea/core/philox.hpp), where i
  /// and j are positions, and batch is the number of the sequence.
  std::uint64_t seed = 0;
  /// If true, row i sees no key after its own position, neither in the sketch nor in the attention.
  bool causal = false;
  /// Position of query row 0; by default the queries end where the rows of k end.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// Scale of the attention's logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// Scale of the sketch's logits; the default is 1/sqrt(d).
  std::optional<double> sketch_scale = {};
  /// How the keys are found; affects only time and memory.
  SketchSearch search = SketchSearch::automatic;

  /// The entries of a row's list: at most the number of keys.
  Index places(Index keys) const { return (std::min)(keys_per_row, keys); }
};

FOVEA_NAMESPACE_END
