// SPDX-License-Identifier: MIT
/// \file
/// Fixed attention of the Sparse Transformer (Child et al. 2019, section 4.3; MATHS.md, section 3).
#pragma once

#include <numeric>

#include "fovea/attention/softmax/head_assignment.hpp"
#include "fovea/attention/softmax/operator.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of FixedAttention.
struct FixedOptions {
  Index stride = 128;  ///< l, keys in a block; at least 1
  Index summary = 8;   ///< c, 1 to l: the last c keys of every block of l keys are its summary
  /// Which heads see A1 and which see A2; by default even heads see A1 and odd heads A2.
  HeadAssignment heads = HeadAssignment::separate;
  /// If true, each head has its own summary: sub-block h % (l / c), counted from the end of the
  /// block.
  bool sub_block_per_head = false;
  /// If true, row i sees no key after its own position.
  bool causal = true;
  /// Scale of the logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// Position of query row 0; by default the queries end where the rows of k end.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// If set, the logit z becomes cap tanh(z / cap), before bias, ALiBi and mask.
  std::optional<double> soft_cap = {};
  /// Dropout of the weights, after the softmax; none by default.
  Dropout dropout = {};
};

/// Fixed attention: softmax over A1, the keys of the query's own block of l, and A2, the summary
/// keys of every block. Logits, shapes, errors and calls are as in SoftmaxOperator. N need not be a
/// multiple of l.
/// Cost: 2 (D + Dv) flops for each visible pair. If causal, A1 has about N (l + 1) / 2 pairs and A2
/// about N^2 c / (2 l).
class FixedAttention : public SoftmaxOperator<FixedAttention> {
 public:
  FixedOptions options;  ///< checked at every call

  /// Holds the options.
  explicit FixedAttention(const FixedOptions& chosen = {}) : options(chosen) {}

  /// The operator's name.
  static constexpr const char* name() { return "FixedAttention"; }
  /// A head's pattern is the same for all shapes.
  static constexpr bool kPatternKnowsShape = false;

  /// The keys that each row of a head sees: A1, A2 or both, as `heads` assigns them.
  AnyPattern pattern(Index head, const SequenceShape& /*shape*/) const {
    const Index sub_block = options.sub_block_per_head ? head % sub_blocks() : 0;
    const FixedShape shape{options.stride, options.summary, sub_block, options.causal};
    return detail::assigned(
        options.heads, head,
        [&] { return AnyPattern(fixed_local(options.stride, options.causal)); },
        [&] { return AnyPattern(FixedSummary{shape}); },
        [&] { return AnyPattern(fixed_merged(shape)); });
  }

  /// The period of the heads' patterns.
  Index pattern_period(Index /*heads*/) const {
    const Index period = detail::assignment_period(options.heads);
    return options.sub_block_per_head ? std::lcm(period, sub_blocks()) : period;
  }

  /// \throws std::invalid_argument if the stride is not between 1 and kFarPosition, or the summary
  /// is not between 1 and the stride
  void check_options() const {
    check_fixed(name(), {options.stride, options.summary, 0, options.causal});
  }

 private:
  Index sub_blocks() const { return options.stride / options.summary; }
};

FOVEA_NAMESPACE_END
