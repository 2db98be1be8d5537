// SPDX-License-Identifier: MIT
/// \file
/// Local (sliding-window) attention: softmax over a window around each query (MATHS.md, section 2).
#pragma once

#include "fovea/attention/softmax/operator.hpp"
#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of LocalAttention. Neither side of the window counts the query's own position: a causal
/// window of W keys, including its own, is left = W - 1 and right = 0.
struct LocalOptions {
  Index left = 0;   ///< number of visible keys before the query, at least 0
  Index right = 0;  ///< number of visible keys after the query, at least 0
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// Position of query row 0; by default the queries end where the rows of k end.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// If set, the logit z becomes cap tanh(z / cap), before bias, ALiBi and mask.
  std::optional<double> soft_cap = {};
  /// Dropout of the weights, after the softmax; none by default.
  Dropout dropout = {};
};

/// Local attention: out_i = sum_j softmax_j(s_ij) v_j over the visible keys j in [i - left, i +
/// right]. The logits s, shapes, errors and calls are as in SoftmaxOperator.
/// Cost: 2 (D + Dv) flops for each visible pair, linear in N.
class LocalAttention : public SoftmaxOperator<LocalAttention> {
 public:
  LocalOptions options;  ///< checked at every call

  /// Holds the options.
  explicit LocalAttention(const LocalOptions& chosen = {}) : options(chosen) {}

  /// The operator's name.
  static constexpr const char* name() { return "LocalAttention"; }
  /// Narrow bands of common widths have special kernels.
  static constexpr bool kNamesBand = true;

  /// The keys that each row sees: the same window for all heads and shapes.
  Window pattern(Index /*head*/, const SequenceShape& /*shape*/) const { return window(); }

  /// \throws std::invalid_argument if a side of the window is negative
  void check_options() const { check_window(name(), window()); }

 private:
  Window window() const { return {options.left, options.right}; }
};

FOVEA_NAMESPACE_END
