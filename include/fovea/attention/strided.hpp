// SPDX-License-Identifier: MIT
/// \file
/// Strided attention of the Sparse Transformer (Child et al. 2019, section 4.3; MATHS.md, section
/// 3).
#pragma once

#include "fovea/attention/softmax/head_assignment.hpp"
#include "fovea/attention/softmax/operator.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of StridedAttention.
struct StridedOptions {
  Index stride = 128;  ///< l, at least 1; near the square root of N the work is least
  HeadAssignment heads = HeadAssignment::separate;
  /// Row i sees keys up to its own position; otherwise both patterns reach behind it, too.
  bool causal = true;
  /// Whether the window A1 has l + 1 keys, as in the paper, or l, as in the authors' code.
  StridedReach reach = StridedReach::formula;
  /// Of the logits; 1 / sqrt(D) if not set.
  std::optional<double> scale = {};
  /// The position of query row 0 if Nq != Nk.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// z becomes cap tanh(z / cap), before bias, ALiBi and mask.
  std::optional<double> soft_cap = {};
  /// Of the weights, after the softmax.
  Dropout dropout = {};
};

/// Softmax over A1, the window of l keys before the query, and A2, every l-th key before it; see
/// SoftmaxOperator for the logits, shapes, errors and the calls. N need not be a multiple of l.
/// Cost: 2 (D + Dv) flops per visible pair: N (l + 1) pairs in A1, about N^2 / (2 l) in A2.
class StridedAttention : public SoftmaxOperator<StridedAttention> {
 public:
  StridedOptions options;

  explicit StridedAttention(const StridedOptions& chosen = {}) : options(chosen) {}

  static constexpr const char* name() { return "StridedAttention"; }
  static constexpr bool kPatternKnowsShape = false;

  AnyPattern pattern(Index head, const SequenceShape& /*shape*/) const {
    const auto& o = options;
    return detail::assigned(
        o.heads, head, [&] { return AnyPattern(strided_local(o.stride, o.causal, o.reach)); },
        [&] {
          return AnyPattern(StridedKeys{o.stride, o.causal});
        },
        [&] { return AnyPattern(strided_merged(o.stride, o.causal, o.reach)); });
  }

  Index pattern_period(Index /*heads*/) const { return detail::assignment_period(options.heads); }

  void check_options() const { check_strided(name(), options.stride); }
};

FOVEA_NAMESPACE_END
