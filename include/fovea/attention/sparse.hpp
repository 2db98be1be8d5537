// SPDX-License-Identifier: MIT
/// \file
/// Attention over any pattern of integers: the ones of fovea/patterns, their compositions, or a
/// user's own.
#pragma once

#include <vector>

#include "fovea/attention/softmax/operator.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of SparseAttention.
struct SparseOptions {
  /// Of any types; head h has patterns[h % size].
  std::vector<AnyPattern> patterns = {};
  /// Of the logits; 1 / sqrt(D) if not set.
  std::optional<double> scale = {};
  /// The position of query row 0 if Nq != Nk.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// z becomes cap tanh(z / cap), before bias, ALiBi and mask.
  std::optional<double> soft_cap = {};
  /// Of the weights, after the softmax.
  Dropout dropout = {};
};

/// Softmax over the keys that a pattern shows; see SoftmaxOperator for the logits, shapes, errors
/// and the calls. What the patterns throw from `plan` for a sequence is thrown before anything is
/// written. Cost: 2 (D + Dv) flops per visible pair.
class SparseAttention : public SoftmaxOperator<SparseAttention> {
 public:
  SparseOptions options;

  explicit SparseAttention(SparseOptions chosen) : options(std::move(chosen)) {}

  static constexpr const char* name() { return "SparseAttention"; }
  static constexpr bool kPatternKnowsShape = false;

  const AnyPattern& pattern(Index head, const SequenceShape& /*shape*/) const {
    const auto size = static_cast<Index>(options.patterns.size());
    return options.patterns[static_cast<std::size_t>(head % size)];
  }

  Index pattern_period(Index /*heads*/) const {
    return static_cast<Index>(options.patterns.size());
  }

  void check_options() const {
    if (options.patterns.empty()) refuse(name(), "the number of patterns", "0", "at least 1");
  }

  void check_pattern(const SequenceShape& shape) const {
    for (const AnyPattern& pattern : options.patterns) {
      for (Index stage = 0; stage < pattern.stage_count(); ++stage) pattern.plan(stage, shape);
    }
  }
};

FOVEA_NAMESPACE_END
