// SPDX-License-Identifier: MIT
/// \file
/// The patterns of the heads of an operator: how many pairs they show, what their plans cost, and
/// the mask that shows the same.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "fovea/attention/attention.hpp"
#include "fovea/patterns/any_pattern.hpp"
#include "fovea/patterns/plan_stats.hpp"

namespace bench {

using fovea::AnyPattern;
using fovea::AnyPlan;
using fovea::AttentionShape;
using fovea::Index;
using fovea::PlanStats;
using fovea::SequenceShape;

/// One sequence of a call.
template <class Op>
SequenceShape sequence_shape(const Op& op, const AttentionShape& shape) {
  return SequenceShape::of(shape.queries, shape.keys, op.softmax_options().alignment);
}

/// Patterns that may differ between heads: head h has that of h % pattern_count.
template <class Op>
Index pattern_count(const Op& op, Index heads) {
  return std::clamp<Index>(op.pattern_period(heads), 1, heads);
}

/// Heads that have pattern n of `count`.
constexpr Index heads_of(Index n, Index count, Index heads) {
  return (heads - n + count - 1) / count;
}

/// Whether no row of any head sees a later key.
template <class Op>
bool is_causal(const Op& op) {
  constexpr Index tokens = 64;  // shows a later key of every pattern that is measured
  const SequenceShape sequence = sequence_shape(op, {.queries = tokens, .keys = tokens});
  for (Index n = 0; n < pattern_count(op, tokens); ++n) {
    const auto pattern = op.pattern(n, sequence);
    for (Index i = 0; i < tokens; ++i) {
      for (Index j = i + 1; j < tokens; ++j) {
        if (pattern.allows(i, j)) return false;
      }
    }
  }
  return true;
}

/// (query, key) pairs that are visible, of all query heads.
template <class Op>
Index attended_pairs(const Op& op, const AttentionShape& shape) {
  const Index count = pattern_count(op, shape.query_heads);
  Index pairs = 0;
  for (Index n = 0; n < count; ++n) {
    pairs += heads_of(n, count, shape.query_heads) * op.attended_pairs(shape, n);
  }
  return pairs;
}

/// Of a pass that has no plan. Pairs are those of all query heads.
inline PlanStats stats_of(const AttentionShape& shape, Index visible, Index computed) {
  PlanStats stats;
  stats.attended_pairs = visible;
  stats.computed_pairs = computed;
  stats.all_pairs =
      static_cast<double>(shape.query_heads * shape.queries) * static_cast<double>(shape.keys);
  return stats;
}

/// Of all query heads and stages. Builds every block once.
template <class Op>
PlanStats plan_stats(const Op& op, const AttentionShape& shape) {
  const SequenceShape sequence = sequence_shape(op, shape);
  const Index count = pattern_count(op, shape.query_heads);
  PlanStats sum = stats_of(shape, 0, 0);
  for (Index n = 0; n < count; ++n) {
    const Index heads = heads_of(n, count, shape.query_heads);
    const AnyPattern pattern = op.pattern(n, sequence);
    for (Index pass = 0; pass < pattern.pass_count(); ++pass) {
      const PlanStats one = fovea::plan_stats(pattern.plan(pass, sequence), sequence);
      sum.attended_pairs += heads * one.attended_pairs;
      sum.computed_pairs += heads * one.computed_pairs;
      sum.blocks += heads * one.blocks;
      sum.runs += heads * one.runs;
    }
  }
  return sum;
}

/// Calls f(block) for every block of every stage of a pattern.
template <class F>
void for_each_block(const AnyPattern& pattern, const SequenceShape& sequence, const F& f) {
  for (Index pass = 0; pass < pattern.pass_count(); ++pass) {
    const AnyPlan plan = pattern.plan(pass, sequence);
    fovea::BlockStorage storage(plan.most_runs());
    for (Index b = 0; b < plan.block_count(); ++b) f(plan.block(b, storage));
  }
}

/// Calls f(run, rows of its block) for every run of every block of every query head, built as a
/// forward pass does.
template <class Op, class F>
void for_each_run(const Op& op, const AttentionShape& shape, const F& f) {
  const SequenceShape sequence = sequence_shape(op, shape);
  for (Index h = 0; h < shape.query_heads; ++h) {
    for_each_block(op.pattern(h, sequence), sequence, [&](const fovea::QueryBlock& block) {
      for (Index n = 0; n < block.run_count; ++n) f(block.runs[n], block.count);
    });
  }
}

/// The sum of the lengths of all runs.
template <class Op>
Index built_keys(const Op& op, const AttentionShape& shape) {
  Index keys = 0;
  for_each_run(op, shape, [&](const fovea::KeyRun& run, Index) { keys += run.count; });
  return keys;
}

/// (query, key) pairs in the blocks of every query head.
template <class Op>
Index built_pairs(const Op& op, const AttentionShape& shape) {
  Index pairs = 0;
  for_each_run(op, shape, [&](const fovea::KeyRun& run, Index rows) {
    for (Index r = 0; r < rows; ++r) {
      const fovea::Range seen = fovea::seen_by(run, r);
      pairs += std::max<Index>(0, seen.end - seen.begin);
    }
  });
  return pairs;
}

/// A pattern as booleans [queries, keys], row-major. Memory: one byte per pair, seen or not.
inline std::unique_ptr<bool[]> mask_of(const AnyPattern& pattern, const SequenceShape& sequence) {
  auto mask = std::make_unique<bool[]>(static_cast<std::size_t>(sequence.queries * sequence.keys));
  for_each_block(pattern, sequence, [&](const fovea::QueryBlock& block) {
    for (Index n = 0; n < block.run_count; ++n) {
      const fovea::KeyRun& run = block.runs[n];
      for (Index r = 0; r < block.count; ++r) {
        bool* const row = mask.get() + (block.first + block.step * r) * sequence.keys + run.first;
        const fovea::Range seen = fovea::seen_by(run, r);
        for (Index t = seen.begin; t < seen.end; ++t) row[t * run.step] = true;
      }
    }
  });
  return mask;
}

}  // namespace bench
