// SPDX-License-Identifier: MIT
/// \file
/// Longformer attention (Beltagy et al. 2020, section 3.1): a window and global tokens.
#pragma once

#include <vector>

#include "fovea/attention/softmax/operator.hpp"
#include "fovea/patterns/window_and_tokens.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of LongformerAttention.
struct LongformerOptions {
  Index left = 256;        ///< keys before the query
  Index right = 256;       ///< keys after the query; none if causal
  Index first_global = 0;  ///< the first so many positions are global
  /// More global positions, ascending, each once, behind the first ones.
  std::vector<Index> global = {};
  /// Row i sees keys up to its own position.
  bool causal = false;
  /// Of the logits; 1 / sqrt(D) if not set.
  std::optional<double> scale = {};
  /// The position of query row 0 if Nq != Nk.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// z becomes cap tanh(z / cap), before bias, ALiBi and mask.
  std::optional<double> soft_cap = {};
  /// Of the weights, after the softmax.
  Dropout dropout = {};
};

/// Softmax over a window around each query and the global positions, which every query sees and
/// which see every key; see SoftmaxOperator for the logits, shapes, errors and the calls.
/// Cost: 2 (D + Dv) flops per visible pair: about N (left + 1 + right + 2 globals).
class LongformerAttention : public SoftmaxOperator<LongformerAttention> {
 public:
  LongformerOptions options;

  explicit LongformerAttention(const LongformerOptions& chosen = {}) : options(chosen) {}

  static constexpr const char* name() { return "LongformerAttention"; }
  static constexpr bool kPatternKnowsShape = false;

  AnyPattern pattern(Index /*head*/, const SequenceShape& /*shape*/) const {
    return WindowAndTokens({options.left, options.right}, tokens());
  }

  void check_options() const {
    check_window(name(), {options.left, options.right});
    tokens();
  }

  void check_pattern(const SequenceShape& shape) const {
    if (!options.global.empty()) check_global(name(), tokens(), shape.keys);
  }

 private:
  /// \throws std::invalid_argument they do not ascend
  GlobalTokens tokens() const {
    return GlobalTokens::first_and(options.first_global, options.global, options.causal, name());
  }
};

FOVEA_NAMESPACE_END
