// SPDX-License-Identifier: MIT
/// \file
/// A plan, enumerated pair by pair against the reference mask of its pattern.
#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "fovea/patterns/plan_stats.hpp"
#include "support/index.hpp"
#include "support/refusal.hpp"

namespace fovea_test {

using fovea::BlockStorage;
using fovea::CausalAlignment;
using fovea::KeyBlock;
using fovea::KeyRun;
using fovea::QueryBlock;
using fovea::Range;
using fovea::SequenceShape;

inline constexpr CausalAlignment kAlignments[] = {CausalAlignment::bottom_right,
                                                  CausalAlignment::top_left};

/// The contents of a plan: how often each row and each pair occurs.
struct Shown {
  std::vector<int> rows;      // [queries]
  std::vector<int> pairs;     // [queries, keys]
  std::vector<Index> blocks;  // [queries]: the block of each row
  Index computed = 0;         // pairs from the first to the last visible one of 16 rows and a run
  Index runs = 0;
  std::string fault;  // the first broken promise
};

inline std::string fault_of(const KeyRun& run, const QueryBlock& block, Index keys) {
  if (run.step < 1 || run.count < 1) return "step or count of a run";
  if (run.first < 0 || run.first + run.step * (run.count - 1) >= keys) return "a run beyond keys";
  if ((run.lower == nullptr) != (run.upper == nullptr)) return "one bound without the other";
  if (run.lower == nullptr) return "";
  for (Index r = 0; r < block.count; ++r) {
    if (run.lower[r] < 0 || run.lower[r] > run.count) return "lower beyond the run";
    if (run.upper[r] < 0 || run.upper[r] > run.count) return "upper beyond the run";
  }
  return "";
}

inline Index low_of(const KeyRun& run, Index r) { return run.lower == nullptr ? 0 : run.lower[r]; }
inline Index high_of(const KeyRun& run, Index r) {
  return run.upper == nullptr ? run.count : run.upper[r];
}

/// Adds the pairs of one row of a block.
inline void add_row(Shown& shown, const QueryBlock& block, Index r, Index keys) {
  const Index row = block.first + block.step * r;
  Index seen = 0;
  for (Index n = 0; n < block.run_count; ++n) {
    const KeyRun& run = block.runs[n];
    for (Index t = low_of(run, r); t < high_of(run, r); ++t, ++seen) {
      ++shown.pairs[as_size(row * keys + run.first + run.step * t)];
    }
  }
  if (seen > block.most_keys) shown.fault = "more than most_keys";
}

/// The slow count of PlanStats::computed_pairs: key by key, whether it is between visible ones.
inline Index computed_pairs_of(const QueryBlock& block) {
  Index pairs = 0;
  for (Index n = 0; n < block.run_count; ++n) {
    const KeyRun& run = block.runs[n];
    for (Index row = 0; row < block.count; row += 16) {
      std::vector<Index> seen;
      for (Index r = row; r < std::min(row + 16, block.count); ++r) {
        for (Index t = low_of(run, r); t < high_of(run, r); ++t) seen.push_back(t);
      }
      if (seen.empty()) continue;
      const auto [first, last] = std::minmax_element(seen.begin(), seen.end());
      pairs += 16 * (*last - *first + 1);
    }
  }
  return pairs;
}

template <class Plan>
Shown enumerate(const Plan& plan, Index queries, Index keys) {
  Shown shown{std::vector<int>(as_size(queries)),
              std::vector<int>(as_size(queries * keys)),
              std::vector<Index>(as_size(queries)),
              0,
              0,
              ""};
  BlockStorage storage(plan.most_runs());
  for (Index b = 0; b < plan.block_count() && shown.fault.empty(); ++b) {
    const QueryBlock block = plan.block(b, storage);
    if (block.count < 1 || block.count > fovea::block_rows(queries)) {
      shown.fault = "rows of a block";
    }
    if (block.most_keys <= fovea::kBandKeys && block.run_count > 1) shown.fault = "band of runs";
    for (Index n = 0; n < block.run_count; ++n) {
      const std::string fault = fault_of(block.runs[n], block, keys);
      if (!fault.empty()) shown.fault = fault;
    }
    for (Index r = 0; r < block.count && shown.fault.empty(); ++r) {
      const Index row = block.first + block.step * r;
      if (row < 0 || row >= queries) {
        shown.fault = "a row beyond the queries";
        break;
      }
      ++shown.rows[as_size(row)];
      shown.blocks[as_size(row)] = b;
      add_row(shown, block, r, keys);
    }
    shown.runs += block.run_count;
    shown.computed += computed_pairs_of(block);
  }
  return shown;
}

/// Every key is in one block of keys, and the plan's properties of adjacent blocks are valid.
template <class Plan>
std::string fault_of_keys(const Plan& plan, const Shown& shown, const SequenceShape& shape) {
  std::vector<Index> block_of(as_size(shape.keys), -1);  // [keys]
  for (Index p = 0; p < plan.key_block_count(); ++p) {
    const KeyBlock keys = plan.key_block(p);
    if (keys.count < 1 || keys.step < 1 || keys.count > fovea::key_block_rows(shape.keys)) {
      return "size of a block of keys";
    }
    for (Index n = 0; n < keys.count; ++n) {
      const Index j = keys.first + keys.step * n;
      if (j < 0 || j >= shape.keys) return "a block of keys beyond the keys";
      if (block_of[as_size(j)] >= 0) return "a key in two blocks";
      block_of[as_size(j)] = p;
    }
    const Range range = plan.query_blocks(p);
    if (range.begin < 0 || range.end > plan.block_count()) return "query_blocks beyond the blocks";
  }
  BlockStorage storage(plan.most_runs());
  std::vector<Range> of_block;
  for (Index b = 0; b < plan.block_count(); ++b) {
    of_block.push_back(plan.key_blocks(plan.block(b, storage)));
    if (of_block.back().end > plan.key_block_count()) return "key_blocks beyond the blocks";
  }
  for (Index j = 0; j < shape.keys; ++j) {
    const Index p = block_of[as_size(j)];
    if (p < 0) return "a key in no block";
    const Range range = plan.query_blocks(p);
    for (Index r = 0; r < shape.queries; ++r) {
      if (shown.pairs[as_size(r * shape.keys + j)] == 0) continue;
      const Index b = shown.blocks[as_size(r)];
      if (b < range.begin || b >= range.end) return "query_blocks misses one";
      if (!plan.meets(b, p)) return "meets misses one";
      if (p < of_block[as_size(b)].begin || p >= of_block[as_size(b)].end) {
        return "key_blocks misses one";
      }
    }
  }
  return "";
}

/// \param reference_mask from MATHS.md: whether position i sees key j
template <class Pattern, class ReferenceMask>
void expect_mask(const Pattern& pattern, const SequenceShape& shape, const std::string& name,
                 ReferenceMask&& reference_mask) {
  const auto plan = pattern.plan(shape);
  const Shown shown = enumerate(plan, shape.queries, shape.keys);
  std::ostringstream text;
  text << "queries " << shape.queries << ", keys " << shape.keys << ", first position "
       << shape.first_position << ", " << name;
  ASSERT_EQ(shown.fault, "") << text.str();
  Index pairs = 0;
  for (Index r = 0; r < shape.queries; ++r) {
    if (shown.rows[as_size(r)] != 1) FAIL() << "row " << r << " " << text.str();
    const Index i = r + shape.first_position;
    for (Index j = 0; j < shape.keys; ++j) {
      const bool sees = reference_mask(i, j);
      if (pattern.allows(i, j) != sees) FAIL() << "allows " << i << " " << j << " " << text.str();
      if (shown.pairs[as_size(r * shape.keys + j)] != (sees ? 1 : 0)) {
        FAIL() << "row " << r << ", key " << j << ": seen "
               << shown.pairs[as_size(r * shape.keys + j)] << " times, " << text.str();
      }
      pairs += sees ? 1 : 0;
    }
  }
  ASSERT_EQ(fault_of_keys(plan, shown, shape), "") << text.str();
  const fovea::PlanStats stats = fovea::plan_stats(plan, shape);
  ASSERT_EQ(plan.attended_pairs(), pairs) << text.str();
  ASSERT_EQ(stats.attended_pairs, pairs) << text.str();
  ASSERT_EQ(stats.computed_pairs, shown.computed) << text.str();
  ASSERT_EQ(stats.runs, shown.runs) << text.str();
  ASSERT_EQ(stats.blocks, plan.block_count()) << text.str();
}

/// Calls f for shapes of up to `most` queries and keys, both alignments: every one up to 10 by 10,
/// and square, tall and wide ones beyond.
template <class F>
void for_each_shape(Index most, F&& f) {
  for (const CausalAlignment alignment : kAlignments) {
    for (Index queries = 0; queries <= 10; ++queries) {
      for (Index keys = 0; keys <= 10; ++keys) {
        f(SequenceShape::of(queries, keys, alignment));
      }
    }
    for (Index n = 11; n <= most; n += 17) {
      f(SequenceShape::of(n, most - n, alignment));
      f(SequenceShape::of(n, n + 37, alignment));
      f(SequenceShape::of(1, n, alignment));
    }
  }
  for (Index n = 11; n <= most; ++n) f(SequenceShape::of(n, n, CausalAlignment::bottom_right));
}

}  // namespace fovea_test
