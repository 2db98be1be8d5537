// SPDX-License-Identifier: MIT
/// \file
/// Attention over any integer pattern: those of fovea/patterns, their combinations, or a user's own
/// (MATHS.md, section 3).
#pragma once

#include <vector>

#include "fovea/attention/softmax/operator.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of SparseAttention.
struct SparseOptions {
  /// At least one pattern, of any type: head h has patterns[h % size].
  std::vector<AnyPattern> patterns = {};
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// Position of query row 0; by default the queries end where the rows of k end.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// If set, the logit z becomes cap tanh(z / cap), before bias, ALiBi and mask.
  std::optional<double> soft_cap = {};
  /// Dropout of the weights, after the softmax; none by default.
  Dropout dropout = {};
};

/// Sparse attention: softmax over the keys that a pattern shows. Logits, shapes, errors and calls
/// are as in SoftmaxOperator. Exceptions from a pattern's `plan` are thrown before anything is
/// written.
/// Cost: 2 (D + Dv) flops for each visible pair.
class SparseAttention : public SoftmaxOperator<SparseAttention> {
 public:
  SparseOptions options;  ///< checked at every call

  /// Holds the options.
  explicit SparseAttention(SparseOptions chosen) : options(std::move(chosen)) {}

  /// The operator's name.
  static constexpr const char* name() { return "SparseAttention"; }
  /// A head's pattern is the same for all shapes.
  static constexpr bool kPatternKnowsShape = false;

  /// The keys that each row of a head sees.
  const AnyPattern& pattern(Index head, const SequenceShape& /*shape*/) const {
    const auto size = static_cast<Index>(options.patterns.size());
    return options.patterns[static_cast<std::size_t>(head % size)];
  }

  /// The period of the heads' patterns.
  Index pattern_period(Index /*heads*/) const {
    return static_cast<Index>(options.patterns.size());
  }

  /// \throws std::invalid_argument if there is no pattern
  void check_options() const {
    if (options.patterns.empty()) refuse(name(), "the number of patterns", "0", "at least 1");
  }

  /// \throws whatever a pattern throws from `plan` for a sequence of this shape
  void check_pattern(const SequenceShape& shape) const {
    for (const AnyPattern& pattern : options.patterns) {
      for (Index pass = 0; pass < pattern.pass_count(); ++pass) pattern.plan(pass, shape);
    }
  }
};

FOVEA_NAMESPACE_END
