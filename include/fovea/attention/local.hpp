// SPDX-License-Identifier: MIT
/// \file
/// Local (window) attention: softmax over a window around each query (MATHS.md, section 2).
#pragma once

#include "fovea/attention/softmax/operator.hpp"
#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of LocalAttention. Both sides are inclusive and do not count the query's own position:
/// a causal window of W keys with itself is left = W - 1, right = 0.
struct LocalOptions {
  Index left = 0;   ///< keys before the query
  Index right = 0;  ///< keys after the query
  /// Of the logits; 1 / sqrt(D) if not set.
  std::optional<double> scale = {};
  /// The position of query row 0 if Nq != Nk.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// z becomes cap tanh(z / cap), before bias, ALiBi and mask.
  std::optional<double> soft_cap = {};
  /// Of the weights, after the softmax.
  Dropout dropout = {};
};

/// out_i = sum_j softmax_j(s_ij) v_j over the visible j in [i - left, i + right]; see
/// SoftmaxOperator for the logits s, shapes, errors and the calls.
/// Cost: 2 (D + Dv) flops per visible pair, so linear in N.
class LocalAttention : public SoftmaxOperator<LocalAttention> {
 public:
  LocalOptions options;

  explicit LocalAttention(const LocalOptions& chosen = {}) : options(chosen) {}

  static constexpr const char* name() { return "LocalAttention"; }

  Window pattern(Index /*head*/, const SequenceShape& /*shape*/) const { return window(); }

  void check_options() const { check_window(name(), window()); }

 private:
  Window window() const { return {options.left, options.right}; }
};

FOVEA_NAMESPACE_END
