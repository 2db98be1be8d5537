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
  Index stride = 128;  ///< l, at least 1
  Index summary = 8;   ///< c, 1 to l: the last c keys of every block of l keys are its summary
  HeadAssignment heads = HeadAssignment::separate;
  /// Head h has a summary of its own: sub-block h % (l / c), counted from the end of the block.
  bool sub_block_per_head = false;
  /// Row i sees keys up to its own position.
  bool causal = true;
  /// Of the logits; 1 / sqrt(D) if not set.
  std::optional<double> scale = {};
  /// The position of query row 0 if Nq != Nk.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// z becomes cap tanh(z / cap), before bias, ALiBi and mask.
  std::optional<double> soft_cap = {};
  /// Of the weights, after the softmax.
  Dropout dropout = {};
};

/// Softmax over A1, the keys of the query's own block of l, and A2, the summary keys of every
/// block; see SoftmaxOperator for the logits, shapes, errors and the calls. N need not be a
/// multiple of l.
/// Cost: 2 (D + Dv) flops per visible pair: N (l + 1) / 2 pairs in A1, about N^2 c / (2 l) in A2.
class FixedAttention : public SoftmaxOperator<FixedAttention> {
 public:
  FixedOptions options;

  explicit FixedAttention(const FixedOptions& chosen = {}) : options(chosen) {}

  static constexpr const char* name() { return "FixedAttention"; }
  static constexpr bool kPatternKnowsShape = false;

  AnyPattern pattern(Index head, const SequenceShape& /*shape*/) const {
    const Index sub_block = options.sub_block_per_head ? head % sub_blocks() : 0;
    const FixedShape shape{options.stride, options.summary, sub_block, options.causal};
    return detail::assigned(
        options.heads, head,
        [&] { return AnyPattern(fixed_local(options.stride, options.causal)); },
        [&] { return AnyPattern(FixedSummary{shape}); },
        [&] { return AnyPattern(fixed_merged(shape)); });
  }

  Index pattern_period(Index /*heads*/) const {
    const Index period = detail::assignment_period(options.heads);
    return options.sub_block_per_head ? std::lcm(period, sub_blocks()) : period;
  }

  void check_options() const {
    check_fixed(name(), {options.stride, options.summary, 0, options.causal});
  }

 private:
  Index sub_blocks() const { return options.stride / options.summary; }
};

FOVEA_NAMESPACE_END
