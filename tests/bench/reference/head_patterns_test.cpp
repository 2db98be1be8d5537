// SPDX-License-Identifier: MIT
// The pair counts of benchmarks, compared with enumeration; and names of rows.
#include "bench/reference/head_patterns.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/measure/cells.hpp"
#include "fovea/attention/big_bird.hpp"
#include "fovea/attention/fixed.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/attention/local.hpp"
#include "fovea/attention/longformer.hpp"
#include "fovea/attention/strided.hpp"

namespace fovea_test::bench_reference_head_patterns {

using bench::Entry;
using bench::Index;
using bench::Pass;
using fovea::AttentionShape;

constexpr AttentionShape kShape{1, 3, 3, 150, 170, 4, 4};

/// Visible pairs of all heads, pair by pair.
template <class Op>
Index enumerated(const Op& op) {
  const fovea::SequenceShape sequence = bench::sequence_shape(op, kShape);
  Index pairs = 0;
  for (Index h = 0; h < kShape.query_heads; ++h) {
    const fovea::AnyPattern pattern = op.pattern(h, sequence);
    for (Index i = 0; i < kShape.queries; ++i) {
      for (Index j = 0; j < kShape.keys; ++j) {
        pairs += pattern.allows(i + sequence.first_position, j);
      }
    }
  }
  return pairs;
}

template <class Op>
void expect_counts(const Op& op) {
  const Index pairs = enumerated(op);
  EXPECT_EQ(bench::attended_pairs(op, kShape), pairs);
  EXPECT_EQ(bench::built_pairs(op, kShape), pairs);
  const fovea::PlanStats stats = bench::plan_stats(op, kShape);
  EXPECT_EQ(stats.attended_pairs, pairs);
  EXPECT_GE(stats.computed_pairs, pairs);
  EXPECT_DOUBLE_EQ(stats.density(), static_cast<double>(pairs) / (3.0 * 150 * 170));
}

template <class Op>
void expect_masks(const Op& op) {
  const fovea::SequenceShape sequence = bench::sequence_shape(op, kShape);
  for (Index h = 0; h < kShape.query_heads; ++h) {
    const fovea::AnyPattern pattern = op.pattern(h, sequence);
    const auto mask = bench::mask_of(pattern, sequence);
    for (Index i = 0; i < kShape.queries; ++i) {
      for (Index j = 0; j < kShape.keys; ++j) {
        ASSERT_EQ(mask[static_cast<std::size_t>(i * kShape.keys + j)],
                  pattern.allows(i + sequence.first_position, j))
            << "head " << h << ", row " << i << ", key " << j;
      }
    }
  }
}

TEST(HeadPatterns, CountsCoverAllHeads) {
  expect_counts(fovea::FullAttention{{.causal = true}});
  expect_counts(fovea::StridedAttention({.stride = 16}));
  expect_counts(fovea::StridedAttention({.stride = 16, .heads = fovea::HeadAssignment::merged}));
  expect_counts(fovea::BigBirdAttention({.block = 16}));
}

TEST(HeadPatterns, MasksShowWhatPatternsAllow) {
  expect_masks(fovea::StridedAttention({.stride = 16}));
  expect_masks(fovea::StridedAttention({.stride = 16, .heads = fovea::HeadAssignment::merged}));
  expect_masks(fovea::BigBirdAttention({.block = 16}));
}

TEST(HeadPatterns, ReportCausality) {
  using fovea::HeadAssignment;
  EXPECT_TRUE(bench::is_causal(fovea::FullAttention{{.causal = true}}));
  EXPECT_TRUE(bench::is_causal(fovea::LocalAttention{{128, 0}}));
  EXPECT_TRUE(bench::is_causal(fovea::BigBirdAttention({.block = 64, .causal = true})));
  EXPECT_FALSE(bench::is_causal(fovea::FullAttention{}));
  EXPECT_FALSE(bench::is_causal(fovea::LocalAttention{{128, 1}}));
  EXPECT_FALSE(bench::is_causal(fovea::BigBirdAttention({.block = 64})));
  EXPECT_FALSE(bench::is_causal(fovea::LongformerAttention({.left = 256, .right = 256})));
  for (const HeadAssignment heads : {HeadAssignment::separate, HeadAssignment::merged}) {
    for (const bool causal : {false, true}) {
      const fovea::StridedAttention strided({.stride = 128, .heads = heads, .causal = causal});
      EXPECT_EQ(bench::is_causal(strided), causal);
      const fovea::FixedAttention fixed(
          {.stride = 128, .summary = 8, .heads = heads, .causal = causal});
      EXPECT_EQ(bench::is_causal(fixed), causal);
    }
  }
}

/// Of a token, in units of D Dv.
TEST(FarWork, CountsTheProductsWithStates) {
  constexpr AttentionShape shape{1, 8, 8, 100, 100, 4, 6};
  constexpr double tokens = 8 * 100 * 4 * 6;
  const bench::FarWork maps{.maps = 3};
  EXPECT_EQ(maps.forward(shape, 100), 3 * 4 * tokens);
  EXPECT_EQ(maps.backward(shape), 3 * 10 * tokens);
  const bench::FarWork delta{.deltas = 1};
  EXPECT_EQ(delta.forward(shape, 100), 6 * tokens);
  EXPECT_EQ(delta.backward(shape), 16 * tokens);

  Entry fmm;
  fmm.names.pass = Pass::training;
  fmm.attended_pairs = [](const AttentionShape& s) { return s.query_heads * s.queries * 9; };
  fmm.far_field = maps;
  const double pairs = 8 * 100 * 9;
  EXPECT_EQ(fmm.flops(shape), 3 * 14 * tokens + pairs * (2 * (4 + 6) + 2 * (3 * 4 + 2 * 6)));
  fmm.names.pass = Pass::decode;  // one new token and one row
  const AttentionShape decode{1, 8, 8, 1, 100, 4, 6};
  EXPECT_EQ(fmm.flops(decode), 3 * 4 * tokens / 100 + pairs / 100 * 2 * (4 + 6));
}

TEST(Cells, AreNamedByWhatTheyMeasure) {
  Entry entry;
  entry.names = {.op = "op", .variant = "v", .pass = Pass::backward};
  entry.families = {{.threads = 2, .lengths = {64}, .heads = 4, .key_heads = 1}};
  EXPECT_EQ(bench::cells_of({entry}).front().name,
            "op/backward/f32/v,heads:4,key_heads:1,threads:2/D:64/N:64");
}

}  // namespace fovea_test::bench_reference_head_patterns
