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
  /// Row i sees the keys up to its own position.
  bool causal = false;
  /// Row i sees `left` keys before its position and `right` after it.
  Window window = {};
  /// Of the logits; 1 / sqrt(D) if not set.
  std::optional<double> scale = {};
  /// The position of query row 0 if Nq != Nk.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// z becomes cap tanh(z / cap), before bias, ALiBi and mask.
  std::optional<double> soft_cap = {};
  /// Of the weights, after the softmax.
  Dropout dropout = {};
};

/// out_i = sum_j softmax_j(s_ij) v_j over the visible keys; see SoftmaxOperator for the logits s,
/// shapes, errors and the calls.
/// Cost: 2 (D + Dv) flops per visible pair; no N x N in memory.
class FullAttention : public SoftmaxOperator<FullAttention> {
 public:
  FullOptions options;

  explicit FullAttention(const FullOptions& chosen = {}) : options(chosen) {}

  static constexpr const char* name() { return "FullAttention"; }

  Window pattern(Index /*head*/, const SequenceShape& /*shape*/) const {
    Window seen = options.window;
    if (options.causal) seen.right = (std::min<Index>)(seen.right, 0);
    return seen;
  }

  void check_options() const { check_window(name(), options.window); }
};

FOVEA_NAMESPACE_END
