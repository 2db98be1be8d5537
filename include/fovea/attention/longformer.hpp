// SPDX-License-Identifier: MIT
/// \file
/// Longformer attention (Beltagy et al. 2020, section 3.1): a window around each query, and global
/// tokens.
#pragma once

#include <vector>

#include "fovea/attention/softmax/operator.hpp"
#include "fovea/patterns/window_and_tokens.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of LongformerAttention.
struct LongformerOptions {
  Index left = 256;  ///< number of window keys before the query, at least 0
  /// Number of window keys after the query, at least 0. If causal, none of them is visible.
  Index right = 256;  ///< keys after the query; none if causal
  /// This many positions, from the first on, are global.
  Index first_global = 0;  ///< the first so many positions are global
  /// More global positions, ascending, each once; none of them is among the first ones above.
  std::vector<Index> global = {};
  /// If true, row i sees no key after its own position.
  bool causal = false;
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// Position of query row 0 if Nq != Nk; by default the queries end where the keys end.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// If set, the logit z becomes cap tanh(z / cap), before bias, ALiBi and mask.
  std::optional<double> soft_cap = {};
  /// Dropout of the weights, after the softmax; none by default.
  Dropout dropout = {};
};

/// Longformer attention: softmax over a window around each query and over the global positions.
/// Every query sees the global positions, and their own queries see every key. The logits, the
/// shapes, the errors and the calls are those of SoftmaxOperator.
/// Cost: 2 (D + Dv) flops for each visible pair; there are about N (left + 1 + right + 2 globals)
/// of them.
class LongformerAttention : public SoftmaxOperator<LongformerAttention> {
 public:
  LongformerOptions options;  ///< checked at every call

  /// Holds these options. They are checked when the operator is called.
  explicit LongformerAttention(const LongformerOptions& chosen = {}) : options(chosen) {}

  /// The name that stands in error messages, tables and benchmarks.
  static constexpr const char* name() { return "LongformerAttention"; }
  /// The pattern is the same for sequences of every shape.
  static constexpr bool kPatternKnowsShape = false;

  /// The keys that each row sees: the window and the global tokens, the same for all heads.
  AnyPattern pattern(Index /*head*/, const SequenceShape& /*shape*/) const {
    return WindowAndTokens({options.left, options.right}, tokens());
  }

  /// \throws std::invalid_argument if a side of the window is negative, or the global positions do
  /// not ascend
  void check_options() const {
    check_window(name(), {options.left, options.right});
    tokens();
  }

  /// \throws std::invalid_argument if a position of `global` is beyond the keys
  void check_pattern(const SequenceShape& shape) const {
    if (!options.global.empty()) check_global(name(), tokens(), shape.keys);
  }

 private:
  /// \throws std::invalid_argument if the positions do not ascend
  GlobalTokens tokens() const {
    return GlobalTokens::first_and(options.first_global, options.global, options.causal, name());
  }
};

FOVEA_NAMESPACE_END
