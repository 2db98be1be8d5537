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
  /// l, at least 1. A stride near the square root of N minimises the work.
  Index stride = 128;
  /// Which heads see A1 and which see A2; by default even heads see A1 and odd heads A2.
  HeadAssignment heads = HeadAssignment::separate;
  /// If true, row i sees no key after its own position; otherwise both patterns extend to both
  /// sides.
  bool causal = true;
  /// Whether the window A1 reaches l keys back, as in the paper, or l - 1, as in the authors' code.
  StridedExtent extent = StridedExtent::formula;
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// Position of query row 0; by default the queries end where the rows of k end.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// If set, the logit z becomes cap tanh(z / cap), before bias, ALiBi and mask.
  std::optional<double> soft_cap = {};
  /// Dropout of the weights, after the softmax; none by default.
  Dropout dropout = {};
};

/// Strided attention: softmax over A1, the window of l keys before the query, and A2, every l-th
/// key before it. Logits, shapes, errors and calls are as in SoftmaxOperator. N need not be a
/// multiple of l.
/// Cost: 2 (D + Dv) flops for each visible pair. If causal, A1 has about N (l + 1) pairs and A2
/// about N^2 / (2 l).
class StridedAttention : public SoftmaxOperator<StridedAttention> {
 public:
  StridedOptions options;  ///< checked at every call

  /// Holds the options.
  explicit StridedAttention(const StridedOptions& chosen = {}) : options(chosen) {}

  /// The operator's name.
  static constexpr const char* name() { return "StridedAttention"; }
  /// A head's pattern is the same for all shapes.
  static constexpr bool kPatternKnowsShape = false;

  /// The keys that each row of a head sees: A1, A2 or both, as `heads` assigns them.
  AnyPattern pattern(Index head, const SequenceShape& /*shape*/) const {
    const auto& o = options;
    return detail::assigned(
        o.heads, head, [&] { return AnyPattern(strided_local(o.stride, o.causal, o.extent)); },
        [&] {
          return AnyPattern(StridedKeys{o.stride, o.causal});
        },
        [&] { return AnyPattern(strided_merged(o.stride, o.causal, o.extent)); });
  }

  /// The period of the heads' patterns.
  Index pattern_period(Index /*heads*/) const { return detail::assignment_period(options.heads); }

  /// \throws std::invalid_argument if the stride is not between 1 and kFarPosition
  void check_options() const { check_strided(name(), options.stride); }
};

FOVEA_NAMESPACE_END
