// SPDX-License-Identifier: MIT
/// \file
/// What a plan costs: pairs that are visible, pairs that the kernels compute, blocks and runs.
#pragma once

#include "fovea/patterns/partition.hpp"

FOVEA_NAMESPACE_BEGIN

/// Of one head. Counts of pairs that Index does not hold are the largest Index.
struct PlanStats {
  Index visible_pairs = 0;
  Index computed_pairs = 0;
  Index blocks = 0;
  Index runs = 0;
  double all_pairs = 0;  // queries times keys

  /// Visible of all pairs.
  double density() const {
    return all_pairs == 0 ? 0 : static_cast<double>(visible_pairs) / all_pairs;
  }
  /// Visible of computed pairs.
  double useful() const {
    return computed_pairs == 0
               ? 1
               : static_cast<double>(visible_pairs) / static_cast<double>(computed_pairs);
  }
};

/// Floating-point operations of pairs, a multiply-add counted as two.
struct FlopCount {
  Index width = 0;        // D
  Index value_width = 0;  // Dv

  constexpr double forward(Index pairs) const {
    return 2.0 * static_cast<double>(width + value_width) * static_cast<double>(pairs);
  }
  constexpr double backward(Index pairs) const {
    return 2.0 * static_cast<double>(3 * width + 2 * value_width) * static_cast<double>(pairs);
  }
};

namespace detail {

/// The keys of a run that rows [row, row + rows) of a block see, as one interval.
inline Range seen_by_rows(const KeyRun& run, Index row, Index rows) {
  if (run.lower == nullptr) return {0, run.count};
  Range seen = {run.count, 0};
  for (Index r = row; r < row + rows; ++r) {
    const Range of_row = seen_by(run, r);
    if (of_row.is_empty()) continue;
    seen.begin = (std::min)(seen.begin, of_row.begin);
    seen.end = (std::max)(seen.end, of_row.end);
  }
  return seen;
}

}  // namespace detail

/// Rows of one vector: float at level v4.
inline constexpr Index kVectorRows = 16;

/// Pairs that the tile kernels compute of a block: its rows are taken a vector at a time, filled up
/// to whole vectors, and of each run a vector computes all keys from the first to the last that one
/// of its rows sees. (Some more with a soft cap, bias, mask or ALiBi.)
inline Index computed_pairs(const QueryBlock& block, Index vector_rows = kVectorRows) {
  Index pairs = 0;
  for (Index n = 0; n < block.run_count; ++n) {
    for (Index row = 0; row < block.count; row += vector_rows) {
      const Range seen =
          detail::seen_by_rows(block.runs[n], row, (std::min)(vector_rows, block.count - row));
      if (!seen.is_empty()) pairs = add_pairs(pairs, vector_rows, seen.end - seen.begin);
    }
  }
  return pairs;
}

/// Builds every block once.
template <PartitionedPlan P>
[[nodiscard]] PlanStats plan_stats(const P& plan, const SequenceShape& shape,
                                   Index vector_rows = kVectorRows) {
  BlockStorage storage(plan.most_runs());
  PlanStats stats;
  stats.visible_pairs = plan.visible_pairs();
  stats.blocks = plan.block_count();
  stats.all_pairs = static_cast<double>(shape.queries) * static_cast<double>(shape.keys);
  for (Index b = 0; b < stats.blocks; ++b) {
    const QueryBlock block = plan.block(b, storage);
    stats.runs += block.run_count;
    stats.computed_pairs = add_pairs(stats.computed_pairs, 1, computed_pairs(block, vector_rows));
  }
  return stats;
}

FOVEA_NAMESPACE_END
