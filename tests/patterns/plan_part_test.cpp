// SPDX-License-Identifier: MIT
/// \file
/// Parts of plans, pair by pair: together they show every pair of the whole once, and no other.
#include "fovea/patterns/plan_part.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "fovea/patterns/block_window.hpp"
#include "fovea/patterns/global.hpp"
#include "fovea/patterns/random_blocks.hpp"
#include "fovea/patterns/window_and_tokens.hpp"
#include "patterns/enumeration.hpp"

namespace fovea_test::patterns_plan_part {

using fovea::AnyPattern;
using fovea::AnyPlan;
using fovea::PlanPart;

constexpr Index kRows = 700;

std::vector<AnyPattern> patterns() {
  fovea::RandomBlocks drawn;
  drawn.block = 32;
  drawn.count = 3;
  drawn.key_blocks = (kRows + 31) / 32;
  fovea::FixedShape fixed;
  fixed.stride = 16;
  return {AnyPattern(fovea::Dense{}),
          AnyPattern(fovea::Causal{}),
          AnyPattern(fovea::Window{9, 4}),
          AnyPattern(fovea::DilatedWindow{100, 30, 7}),
          AnyPattern(fovea::strided_merged(16)),
          AnyPattern(fovea::fixed_merged(fixed)),
          AnyPattern(fovea::unite(fovea::Window{5, 5}, drawn))};
}

/// Ranges with ends at places that fit no block.
std::vector<std::vector<Range>> cuts() {
  return {{{0, kRows}},
          {{0, 1}, {1, 350}, {350, 351}, {351, kRows}},
          {{0, 37}, {37, 301}, {301, kRows}}};
}

/// How often the blocks of a part show each pair, with the promises of a plan.
std::vector<int> pairs_of(const PlanPart& part) {
  const Shown shown = enumerate(part, kRows, kRows);
  EXPECT_EQ(shown.fault, "");
  return shown.pairs;
}

TEST(PlanPart, PartsOfRowsAndKeysContainEachPairOnce) {
  for (const AnyPattern& pattern : patterns()) {
    for (Index pass = 0; pass < pattern.pass_count(); ++pass) {
      const AnyPlan whole = pattern.plan(pass, {kRows, kRows, 0});
      const std::vector<int> expected = enumerate(whole, kRows, kRows).pairs;
      for (const std::vector<Range>& rows : cuts()) {
        for (const std::vector<Range>& keys : cuts()) {
          std::vector<int> shown(expected.size());
          for (const Range& some : rows) {
            for (const Range& seen : keys) {
              for (const auto unseen :
                   {PlanPart::EmptyPieces::kept, PlanPart::EmptyPieces::left_out}) {
                const PlanPart part(whole, {&some, 1}, seen, unseen);
                const std::vector<int> pairs = pairs_of(part);
                Index count = 0;
                for (Index at = 0; at < kRows * kRows; ++at) {
                  const int n = pairs[as_size(at)];
                  count += n;
                  if (n > 0) {
                    EXPECT_TRUE(some.holds(at / kRows) && seen.holds(at % kRows)) << at;
                  }
                  if (unseen == PlanPart::EmptyPieces::kept) shown[as_size(at)] += n;
                }
                EXPECT_EQ(part.attended_pairs(), count);
              }
            }
          }
          EXPECT_EQ(shown, expected);
        }
      }
    }
  }
}

TEST(PlanPart, KeepsOrOmitsRowsThatSeeNothing) {
  const AnyPlan whole(fovea::Window{3, 0}.plan({kRows, kRows, 0}));
  const Range rows = {100, 600};
  const auto blocks_and_rows = [&](PlanPart::EmptyPieces unseen) {
    const PlanPart part(whole, {&rows, 1}, {590, kRows}, unseen);
    Index count = 0;
    for (Index b = 0; b < part.block_count(); ++b) {
      BlockStorage storage(part.most_runs());
      const QueryBlock block = part.block(b, storage);
      const fovea::RowBlock row_block = part.rows(b);
      EXPECT_EQ(row_block.first, block.first);
      EXPECT_EQ(row_block.step, block.step);
      EXPECT_EQ(row_block.count, block.count);
      count += block.count;
    }
    return count;
  };
  EXPECT_EQ(blocks_and_rows(PlanPart::EmptyPieces::kept), 500);
  const Index left = blocks_and_rows(PlanPart::EmptyPieces::left_out);
  EXPECT_GE(left, 10);  // rows 590 to 599
  EXPECT_LE(left, 10 + fovea::block_rows(kRows));
}

/// How often a part adds each pair to gradients of queries, and how often to those of keys.
struct Added {
  explicit Added(std::size_t pairs) : to_queries(pairs), to_keys(pairs) {}

  /// Adds the pairs of a part, whose ranges of blocks must be valid.
  void add(const PlanPart& part) {
    BlockStorage storage(part.most_runs());
    Index largest = 0;
    for (Index p = 0; p < part.key_block_count(); ++p) {
      largest = std::max(largest, part.key_block(p).count);
    }
    EXPECT_EQ(part.largest_key_block(), largest);
    for (Index b = 0; b < part.block_count(); ++b) {
      const QueryBlock rows = part.block(b, storage);
      const Range of_rows = part.key_blocks(rows);
      for (Index p = 0; p < part.key_block_count(); ++p) add_pairs(part, b, p, rows, of_rows);
    }
  }

  void add_pairs(const PlanPart& part, Index b, Index p, const QueryBlock& rows,
                 const Range& of_rows) {
    const KeyBlock keys = part.key_block(p);
    const fovea::GradientRoles of_b = part.query_roles(b);
    const fovea::GradientRoles of_p = part.key_roles(p);
    bool sees = false;
    for (Index n = 0; n < rows.run_count; ++n) {
      const fovea::KeyRun& run = rows.runs[n];
      for (Index r = 0; r < rows.count; ++r) {
        const Range seen = seen_by(run, r);
        for (Index t = seen.begin; t < seen.end; ++t) {
          const Index key = run.first + run.step * t;
          const Index place = key - keys.first;
          if (place < 0 || place % keys.step != 0 || place / keys.step >= keys.count) continue;
          sees = true;
          const std::size_t at = as_size((rows.first + rows.step * r) * kRows + key);
          to_queries[at] += of_b.of_queries && of_p.of_queries ? 1 : 0;
          to_keys[at] += of_b.of_keys && of_p.of_keys ? 1 : 0;
        }
      }
    }
    if (!sees) return;
    EXPECT_TRUE(part.query_blocks(p).holds(b));
    EXPECT_TRUE(part.meets(b, p));
    EXPECT_TRUE(of_rows.holds(p));
  }

  std::vector<int> to_queries, to_keys;
};

/// Together, ranks compute every pair for gradients once on the rank of its query, and once on the
/// rank of its key.
TEST(PlanPart, GradientsOfRanksAddEachPairOnce) {
  for (const AnyPattern& pattern : patterns()) {
    for (Index pass = 0; pass < pattern.pass_count(); ++pass) {
      const AnyPlan whole = pattern.plan(pass, {kRows, kRows, 0});
      const std::vector<int> expected = enumerate(whole, kRows, kRows).pairs;
      for (const std::vector<Range>& ranks : cuts()) {
        Added all(expected.size());
        for (const Range& own : ranks) {
          Added of_rank(expected.size());
          of_rank.add(PlanPart::of_gradients(whole, {&own, 1}));
          for (Index at = 0; at < kRows * kRows; ++at) {
            const std::size_t n = as_size(at);
            EXPECT_TRUE(of_rank.to_queries[n] == 0 || own.holds(at / kRows)) << at;
            EXPECT_TRUE(of_rank.to_keys[n] == 0 || own.holds(at % kRows)) << at;
            all.to_queries[n] += of_rank.to_queries[n];
            all.to_keys[n] += of_rank.to_keys[n];
          }
        }
        EXPECT_EQ(all.to_queries, expected);
        EXPECT_EQ(all.to_keys, expected);
      }
    }
  }
}

/// Blocks within a rank's rows are visited once, for both gradients; only those across an end are
/// visited twice.
TEST(PlanPart, BlocksOfOwnRowsAreVisitedOnce) {
  const AnyPlan whole(fovea::Causal{}.plan({kRows, kRows, 0}));
  const Range own = {10, 500};
  const PlanPart part = PlanPart::of_gradients(whole, {&own, 1});
  Index both = 0;
  for (Index b = 0; b < part.block_count(); ++b) {
    const fovea::GradientRoles roles = part.query_roles(b);
    const fovea::Range rows = part.rows(b).span();
    const bool is_inside = own.begin <= rows.begin && rows.end <= own.end;
    EXPECT_EQ(roles.of_queries, is_inside) << b;
    both += roles.of_queries && roles.of_keys ? 1 : 0;
  }
  EXPECT_GT(both, 0);
  EXPECT_LE(part.block_count(), whole.block_count() + 2);
  EXPECT_LE(part.key_block_count(), whole.key_block_count() + 2);
  // With all rows it is the whole plan.
  const Range all = {0, kRows};
  const PlanPart same = PlanPart::of_gradients(whole, {&all, 1});
  EXPECT_EQ(same.block_count(), whole.block_count());
  EXPECT_EQ(same.key_block_count(), whole.key_block_count());
}

TEST(PlanPart, PlacesOfAStripWithinARange) {
  using fovea::places_within;
  EXPECT_EQ(places_within({5, 3, 4}, {0, 100}), (Range{0, 4}));  // 5, 8, 11, 14
  EXPECT_EQ(places_within({5, 3, 4}, {6, 12}), (Range{1, 3}));
  EXPECT_EQ(places_within({5, 3, 4}, {8, 14}), (Range{1, 3}));
  EXPECT_TRUE(places_within({5, 3, 4}, {15, 20}).is_empty());
  EXPECT_TRUE(places_within({5, 3, 4}, {9, 9}).is_empty());
  EXPECT_EQ(places_within({5, 3, 4}, fovea::kEverywhere), (Range{0, 4}));
}

}  // namespace fovea_test::patterns_plan_part
