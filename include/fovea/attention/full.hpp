// SPDX-License-Identifier: MIT
/// \file
/// Full softmax attention (Vaswani et al. 2017; MATHS.md, section 2), optionally causal or
/// windowed.
#pragma once

#include <algorithm>

#include "fovea/attention/softmax/operator.hpp"
#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of FullAttention.
struct FullOptions {
  /// If true, row i sees no key after its own position.
  bool causal = false;
  /// The window of visible keys: row i sees `left` keys before its position and `right` after it.
  /// By default both sides are unbounded.
  Window window = {};
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// Position of query row 0; by default the queries end where the rows of k end.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// If set, the logit z becomes cap tanh(z / cap), before bias, ALiBi and mask.
  std::optional<double> soft_cap = {};
  /// Dropout of the weights, after the softmax; none by default.
  Dropout dropout = {};
};

/// Full softmax attention: out_i = sum_j softmax_j(s_ij) v_j over the visible keys j. The logits s,
/// shapes, errors and calls are as in SoftmaxOperator.
/// Cost: 2 (D + Dv) flops for each visible pair. No N x N matrix is kept in memory.
class FullAttention : public SoftmaxOperator<FullAttention> {
 public:
  FullOptions options;  ///< checked at every call

  /// Holds the options.
  explicit FullAttention(const FullOptions& chosen = {}) : options(chosen) {}

  /// The operator's name.
  static constexpr const char* name() { return "FullAttention"; }

  /// The keys that each row sees, the same for all heads: the window, with right = 0 if causal.
  Window pattern(Index /*head*/, const SequenceShape& /*shape*/) const {
    Window seen = options.window;
    if (options.causal) seen.right = (std::min<Index>)(seen.right, 0);
    return seen;
  }

  /// \throws std::invalid_argument if a side of the window is negative
  void check_options() const { check_window(name(), options.window); }
};

FOVEA_NAMESPACE_END
