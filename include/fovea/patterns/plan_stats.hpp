// SPDX-License-Identifier: MIT
/// \file
/// A plan's cost: visible pairs, pairs that the kernels compute, blocks and runs.
#pragma once

#include "fovea/patterns/partition.hpp"

FOVEA_NAMESPACE_BEGIN

/// The cost of one head's plan. Counts of pairs saturate at the largest Index.
struct PlanStats {
  Index attended_pairs = 0;  ///< (query, key) pairs that the pattern shows
  Index computed_pairs = 0;  ///< pairs that the tile kernels compute
  Index blocks = 0;          ///< blocks of query rows
  Index runs = 0;            ///< runs of keys, over all blocks
  double all_pairs = 0;      ///< queries times keys

  /// Visible pairs divided by all pairs; 0 if there are no pairs.
  double density() const {
    return all_pairs == 0 ? 0 : static_cast<double>(attended_pairs) / all_pairs;
  }
  /// Visible pairs divided by computed ones; 1 if none is computed.
  double useful() const {
    return computed_pairs == 0
               ? 1
               : static_cast<double>(attended_pairs) / static_cast<double>(computed_pairs);
  }
};

/// Counts floating-point operations of attention from the number of pairs. A multiply-add counts as
/// two.
struct FlopCount {
  Index width = 0;        ///< D, the width of queries and keys
  Index value_width = 0;  ///< Dv, the width of values

  /// The operations of the forward pass.
  constexpr double forward(Index pairs) const {
    return 2.0 * static_cast<double>(width + value_width) * static_cast<double>(pairs);
  }
  /// The operations of the backward pass.
  constexpr double backward(Index pairs) const {
    return 2.0 * static_cast<double>(3 * width + 2 * value_width) * static_cast<double>(pairs);
  }
};

namespace detail {

/// The points of a run that rows [row, row + rows) of a block see, as one interval.
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

/// The number of rows in one vector: for float at level v4 (AVX-512).
inline constexpr Index kVectorRows = 16;

/// The pairs of a block that the tile kernels compute. They process its rows one vector at a time,
/// padding the last. For each run, a vector computes all keys from the first to the last that any
/// of its rows sees. With a soft cap, bias, mask or ALiBi they compute some more.
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

/// A plan's cost for a sequence of this shape. Builds every block once.
template <PartitionedPlan P>
[[nodiscard]] PlanStats plan_stats(const P& plan, const SequenceShape& shape,
                                   Index vector_rows = kVectorRows) {
  BlockStorage storage(plan.most_runs());
  PlanStats stats;
  stats.attended_pairs = plan.attended_pairs();
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
