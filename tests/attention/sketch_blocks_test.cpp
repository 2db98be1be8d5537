// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// The choice of keys by blocks against the exhaustive choice: the same keys for every policy,
/// shape and level, whatever the numbers are; and that it does not look at most keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention/sketch_problem.hpp"
#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/smart_bird/sketch_blocks.hpp"
#include "fovea/kernels/sketch/table.hpp"
#include "support/levels.hpp"
#include "support/same_everywhere.hpp"

namespace fovea_test::attention_sketch_blocks {

using fovea::SketchBlockKeys;
using fovea::SketchBlocks;
using fovea::SketchKeys;
using fovea::SketchSearch;
using fovea::SketchSegment;
using fovea::SketchSegments;

/// Points around centres that all of the tensor share.
Fill clustered(std::uint64_t seed, Index centres, double deviation) {
  const Fill centre = gaussian(77, 1.5);
  const Fill noise = gaussian(seed, deviation);
  return [=](Index b, Index h, Index n, Index c) {
    const auto of =
        static_cast<Index>(hash(seed, b, h, n, 0) % static_cast<std::uint64_t>(centres));
    return centre(0, 0, of, c) + noise(b, h, n, c);
  };
}

struct Setting {
  BirdSizes sizes;
  Index keys_per_row;
  double deviation;  // of the sketch's queries
};

const std::array kSettings = {
    Setting{{.heads = 3, .queries = 10, .keys = 1024}, 20, 1},
    Setting{{.heads = 2, .queries = 7, .keys = 3000, .sketch_width = 2}, 5, 4},
    Setting{{.batch = 2, .heads = 2, .queries = 20, .keys = 6500}, 20, 1},
    Setting{{.heads = 4, .queries = 20, .keys = 8200, .sketch_width = 3}, 33, 2},
    Setting{{.heads = 2, .queries = 12, .keys = 2100, .sketch_width = 8}, 20, 0.3},
    Setting{{.heads = 2, .queries = 6, .keys = 9000, .sketch_width = 1}, 1, 2},
    Setting{{.heads = 1, .queries = 5, .keys = 5000}, 700, 1},
    Setting{{.heads = 1, .queries = 4, .keys = 1500}, 2000, 1},
    Setting{{.heads = 1, .queries = 4, .keys = 1500, .sketch_width = 0}, 20, 1},
    Setting{{.heads = 1, .queries = 4, .keys = 1500, .sketch_width = 9}, 20, 1},
};

template <class T>
void expect_all(SamplingPolicy policy) {
  for (const Setting& setting : kSettings) {
    BirdProblem<T> problem(setting.sizes, setting.deviation);
    for (const bool is_clustered : {false, true}) {
      if (is_clustered) {
        problem.sketch_q.fill(clustered(5, 16, 0.3 * setting.deviation));
        problem.sketch_k.fill(clustered(6, 16, 0.3));
      }
      for (const bool causal : {false, true}) {
        SCOPED_TRACE("keys " + std::to_string(setting.sizes.keys) + (causal ? ", causal" : "") +
                     (is_clustered ? ", clustered" : ""));
        expect_same_choice(
            problem,
            {.keys_per_row = setting.keys_per_row, .policy = policy, .seed = 11, .causal = causal});
      }
    }
  }
}

class SketchBlocksChoice : public testing::TestWithParam<SamplingPolicy> {};

TEST_P(SketchBlocksChoice, EqualsTheExhaustiveChoice) {
  expect_all<float>(GetParam());
  expect_all<double>(GetParam());
}

/// Many rows and draws, so that some are near the edge of what can be decided.
TEST_P(SketchBlocksChoice, EqualsTheExhaustiveChoiceForManyRows) {
  BirdProblem<float> problem({.heads = 8, .queries = 400, .keys = 4096});
  for (const std::uint64_t seed : {1u, 2u}) {
    expect_same_choice(problem, {.policy = GetParam(), .seed = seed});
    problem.sketch_q.fill(clustered(seed, 8, 0.2));
    problem.sketch_k.fill(clustered(seed + 10, 8, 0.2));
  }
}

/// Few different keys: their scores differ by the draws alone, and under top_k they are ties.
TEST_P(SketchBlocksChoice, EqualsTheExhaustiveChoiceAmongEqualKeys) {
  for (const Index different : {1, 3, 300}) {
    BirdProblem<float> problem({.heads = 2, .queries = 30, .keys = 4500});
    problem.sketch_k.fill([&](Index, Index, Index j, Index c) {
      return uniform(hash(3, 0, 0, j * 7919 % different, c));
    });
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(std::to_string(different) + (causal ? " keys, causal" : " keys"));
      expect_same_choice(problem, {.policy = GetParam(), .causal = causal});
    }
  }
}

/// From nearly equal logits to one whose weight is 1, so that p is infinite, and beyond what bounds
/// can resolve.
TEST_P(SketchBlocksChoice, EqualsTheExhaustiveChoiceForAnySize) {
  for (const double size : {0.0, 1e-30, 1e-6, 0.01, 5.0, 30.0, 300.0, 1e4, 1e12, 1e18}) {
    SCOPED_TRACE(size);
    BirdProblem<float> problem({.heads = 2, .queries = 16, .keys = 3100}, size);
    expect_same_choice(problem, {.policy = GetParam()});
    if (size == 0) continue;
    problem.sketch_q.fill(gaussian(4, 1 / size));
    problem.sketch_k.fill(gaussian(5, size));
    expect_same_choice(problem, {.policy = GetParam()});
  }
  BirdProblem<double> wide({.heads = 2, .queries = 16, .keys = 3100}, 1e60);
  expect_same_choice(wide, {.policy = GetParam()});
}

/// Rows and keys with NaN, inside and outside of blocks.
TEST_P(SketchBlocksChoice, EqualsTheExhaustiveChoiceForNaN) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {nan, infinity, -infinity, 3e38f}) {
    for (const Index key : {Index{700}, Index{3099}}) {
      SCOPED_TRACE(std::to_string(bad) + " at key " + std::to_string(key));
      BirdProblem<float> problem({.heads = 2, .queries = 40, .keys = 3100});
      problem.sketch_k(0, 0, key, 2) = bad;
      expect_same_choice(problem, {.policy = GetParam()});
      expect_same_choice(problem, {.policy = GetParam(), .causal = true});
    }
    BirdProblem<float> problem({.heads = 2, .queries = 10, .keys = 3100});
    problem.sketch_q(0, 0, 5, 1) = bad;
    expect_same_choice(problem, {.policy = GetParam()});
  }
}

/// A sequence without blocks does not affect the blocks of others.
TEST_P(SketchBlocksChoice, WithNaNInOneSequence) {
  BirdProblem<float> problem({.batch = 3, .heads = 2, .queries = 20, .keys = 3100});
  problem.sketch_k(2, 0, 700, 2) = std::numeric_limits<float>::infinity();
  expect_same_choice(problem, {.policy = GetParam()});
  expect_same_choice(problem, {.policy = GetParam(), .causal = true});
}

TEST_P(SketchBlocksChoice, RespectsLengthsPackingAndAlignment) {
  BirdProblem<float> padded({.batch = 4, .heads = 2, .queries = 30, .keys = 9300});
  padded.key_lengths = {9300, 0, 1100, 8191};
  BirdProblem<float> packed({.heads = 2, .queries = 60, .keys = 9000});
  packed.cu_q = {0, 10, 10, 35, 60};
  packed.cu_k = {0, 1500, 1540, 1540, 9000};
  using enum fovea::CausalAlignment;
  expect_same_choice(padded, {.policy = GetParam()});
  for (const auto alignment : {top_left, key_length}) {
    expect_same_choice(padded, {.policy = GetParam(), .causal = true, .alignment = alignment});
  }
  padded.first_positions.assign(4, 9270);
  expect_same_choice(padded, {.policy = GetParam(), .causal = true});
  for (const bool causal : {false, true}) {
    expect_same_choice(packed, {.policy = GetParam(), .causal = causal});
  }
}

/// Every row of a causal sequence: before, at and after the ends of segments.
TEST_P(SketchBlocksChoice, EqualsTheExhaustiveChoiceForEveryPrefix) {
  BirdProblem<float> problem({.heads = 1, .queries = 8400, .keys = 8400});
  problem.sketch_q.fill(clustered(1, 8, 0.3));
  problem.sketch_k.fill(clustered(2, 8, 0.3));
  expect_same_choice(problem, {.keys_per_row = 4, .policy = GetParam(), .causal = true});
}

/// Rows that see several consecutive segments: of twice and once the shortest length, and of four
/// times, twice and once.
TEST_P(SketchBlocksChoice, EqualsTheExhaustiveChoiceAfterSeveralSegments) {
  for (const Index keys :
       {3 * SketchSegments::kLeastSegment + 500, 7 * SketchSegments::kLeastSegment + 5}) {
    SCOPED_TRACE(keys);
    BirdProblem<float> problem({.heads = 2, .queries = 24, .keys = keys});
    expect_same_choice(problem, {.policy = GetParam(), .causal = true});
    problem.sketch_q.fill(clustered(1, 8, 0.3));
    problem.sketch_k.fill(clustered(2, 8, 0.3));
    expect_same_choice(problem, {.policy = GetParam(), .causal = true});
  }
}

TEST_P(SketchBlocksChoice, SupportsDraws) {
  const BirdProblem<float> problem({.heads = 2, .queries = 8, .keys = 2100});
  Tensor<float> draws({1, 2, 8, 2100});
  draws.fill([](Index b, Index h, Index i, Index j) { return uniform(hash(9, b, h, i, j)); });
  expect_same_choice<float>(problem, {.policy = GetParam()}, draws.view());
}

TEST_P(SketchBlocksChoice, IsTheSameForAnyThreads) {
  const BirdProblem<float> problem({.batch = 2, .heads = 2, .queries = 100, .keys = 5000});
  const SmartBirdAttention op(
      {.policy = GetParam(), .causal = true, .search = SketchSearch::blocks});
  expect_same_bits_on_executors(1, [&](AnyExecutor* executor) {
    std::vector<Index> chosen;
    on_executor(executor, [&](auto&& on) {
      chosen = values_of(op.select(problem.inputs().sketch(), 2, on).view());
    });
    return chosen;
  });
}

INSTANTIATE_TEST_SUITE_P(Policies, SketchBlocksChoice, testing::ValuesIn(kPolicies), policy_name);

/// Rows take blocks by themselves where there are enough keys.
TEST(SketchBlocks, AreUsedForLongSequences) {
  const auto has_blocks = [](const SmartBirdOptions& options, Index queries, Index keys,
                             Index width) {
    return SketchSegments::has_blocks(options, {.queries = queries, .keys = keys, .key_end = keys},
                                      width);
  };
  EXPECT_TRUE(has_blocks({}, 16384, 16384, 4));
  EXPECT_FALSE(has_blocks({}, 16384, 16383, 4));
  EXPECT_FALSE(has_blocks({}, 1023, 16384, 4));
  EXPECT_FALSE(has_blocks({.causal = true}, 16384, 16384, 4));
  EXPECT_TRUE(has_blocks({.causal = true}, 32768, 32768, 4));
  EXPECT_TRUE(has_blocks({.policy = SamplingPolicy::top_k}, 8192, 8192, 4));
  EXPECT_FALSE(has_blocks({.policy = SamplingPolicy::random}, 16384, 16384, 4));
  EXPECT_FALSE(has_blocks({.policy = SamplingPolicy::inverse_log}, 16384, 16384, 4));
  EXPECT_TRUE(has_blocks({.policy = SamplingPolicy::inverse_log}, 16384, 32768, 4));
  EXPECT_FALSE(has_blocks({.keys_per_row = 33}, 16384, 16384, 4));
  EXPECT_FALSE(has_blocks({}, 16384, 16384, 5));
  EXPECT_FALSE(has_blocks({.search = SketchSearch::blocks}, 16384, 16384, 9));
  EXPECT_FALSE(has_blocks({.search = SketchSearch::exhaustive}, 16384, 16384, 4));
  EXPECT_TRUE(has_blocks({.search = SketchSearch::blocks}, 1, 1024, 4));
}

/// Before every position there are consecutive segments and a rest below the shortest length.
TEST(SketchBlocks, SegmentsEndNearEveryPosition) {
  constexpr Index keys = 40000;
  std::vector<SketchSegment> segments;
  const SmartBirdOptions options{.causal = true, .search = SketchSearch::blocks};
  const Index blocks =
      SketchSegments::add(options, {.queries = 1, .keys = keys, .key_end = keys}, 4, 0, segments);
  Index sum = 0;
  for (const SketchSegment& segment : segments) {
    EXPECT_EQ(segment.block, sum);
    EXPECT_EQ(segment.keys % fovea::kSegmentKeys, 0);
    sum += segment.keys / fovea::kBlockKeys;
  }
  EXPECT_EQ(blocks, sum);
  EXPECT_LE(blocks * fovea::kBlockKeys, 3 * keys);
  for (Index seen = 0; seen <= keys; seen += 500) {
    Index covered = 0;
    for (const SketchSegment& segment : segments) {
      const bool fits = segment.first == covered && covered + segment.keys <= seen;
      covered += fits ? segment.keys : 0;
    }
    EXPECT_LT(seen - covered, SketchSegments::kLeastSegment);
  }
}

/// The blocks of sequences, as a call of the operator makes them.
struct KernelCall {
  explicit KernelCall(const BirdProblem<float>& problem, bool causal = false)
      : keys(problem.sizes.batch, problem.sizes.sketch_width), blocks(problem.sizes.sketch_width) {
    const SmartBirdOptions options{.causal = causal, .search = SketchSearch::blocks};
    keys.reserve(0, problem.sizes.keys);
    for (Index b = 0; b < problem.sizes.batch; ++b) {
      keys.put(problem.sketch_k.view(), b, 0, 0, problem.sizes.keys);
    }
    const AllInputs<float> in = problem.inputs();
    const auto sketch = fovea::detail::tokens_of(in.sketch());
    const fovea::Sequences<float> sequences(sketch);
    blocks.plan(options, sequences, fovea::SystemMemory{});
    for (Index n = 0; n < blocks.segment_count(); ++n) {
      blocks.make(n, sequences[blocks.sequence_of(n)], keys);
    }
    blocks.finish();
  }

  SketchKeys<float> keys;
  SketchBlockKeys<float> blocks;
};

/// Statistics of a sequence's keys include all of its segments, and no other sequence.
TEST(SketchBlocks, KnowTheLargestKeysOfTheirSequence) {
  constexpr Index keys = 3 * SketchSegments::kLeastSegment;
  for (const bool causal : {false, true}) {
    BirdProblem<float> problem({.batch = 3, .queries = 1, .keys = keys});
    problem.sketch_k.fill([](Index b, Index, Index j, Index c) {
      // The largest one of a column is the last one.
      return static_cast<double>((b + 1) * (c + 1)) * (j == keys - 1 ? -2 : 1);
    });
    const KernelCall call(problem, causal);
    for (Index s = 0; s < 3; ++s) {
      const SketchBlocks<float> blocks = call.blocks.of(s);
      ASSERT_EQ(blocks.segment_count, causal ? 3 : 1);
      for (Index c = 0; c < 4; ++c) {
        EXPECT_EQ(blocks.largest[c], static_cast<float>(2 * (s + 1) * (c + 1)));
      }
    }
  }
}

/// The blocks contain each key once, and bound it.
TEST(SketchBlocks, ContainEveryKeyOnce) {
  const BirdProblem<float> problem({.queries = 1, .keys = 5000});
  const KernelCall call(problem);
  const SketchBlocks<float> blocks = call.blocks.of(0);
  ASSERT_EQ(blocks.segment_count, 1);
  ASSERT_EQ(blocks.segments[0].keys, 4096);
  std::set<Index> seen;
  for (Index n = 0; n < 4096; ++n) {
    const Index key = blocks.positions[n];
    seen.insert(key);
    for (Index c = 0; c < 4; ++c) {
      const float x = problem.sketch_k(0, 0, key, c);
      EXPECT_EQ(blocks.keys[c * blocks.keys_row + n], x);
      EXPECT_LE(std::abs(x), blocks.largest[c]);
      const float* const moment = blocks.moments + n / fovea::kBlockKeys;
      EXPECT_LE(std::abs(x - moment[c * blocks.moments_row]), moment[(4 + c) * blocks.moments_row]);
    }
  }
  EXPECT_EQ(seen.size(), 4096u);
  EXPECT_EQ(*seen.rbegin(), 4095);
}

/// Of a clustered sketch most keys are not looked at; the exhaustive choice looks at all.
TEST(SketchBlocks, AreMostlyLeftClosed) {
  constexpr Index keys = 16384;
  constexpr Index rows = 16;
  BirdProblem<float> problem({.heads = 4, .queries = rows, .keys = keys});
  problem.sketch_q.fill(clustered(1, 32, 0.3));
  problem.sketch_k.fill(clustered(2, 32, 0.3));
  const KernelCall call(problem);
  const SketchBlocks<float> blocks = call.blocks.of(0);
  std::vector<Index> indices(static_cast<std::size_t>(4 * rows * 20));
  std::array<Index, rows> looked_at{};
  std::vector<std::byte> scratch(
      static_cast<std::size_t>(fovea::sketch_select_scratch<float>(keys, 4, true)) + 64);
  fovea::SketchSelectArgs<float> args;
  args.q = fovea::detail::head_matrix(View<const float>(problem.sketch_q.view()), 0, 0, 0);
  args.keys = call.keys.keys(0, 0);
  args.keys_row = call.keys.room();
  args.width = 4;
  args.rows = rows;
  args.key_end = keys;
  args.scale = 0.5f;
  args.heads = 4;
  args.indices = indices.data();
  args.indices_head = rows * 20;
  args.indices_row = 20;
  args.chosen = 20;
  args.looked_at = looked_at.data();
  args.scratch = scratch.data();
  for (const SamplingPolicy policy :
       {SamplingPolicy::squared_inverse_log, SamplingPolicy::inverse_log, SamplingPolicy::raw,
        SamplingPolicy::top_k}) {
    args.policy = policy;
    at_each_level([&] {
      args.blocks = &blocks;
      fovea::SketchKernels<float>{}.select(args);
      std::sort(looked_at.begin(), looked_at.end());
      EXPECT_GT(looked_at[0], 0);
      EXPECT_LT(looked_at[rows / 2], keys / 3) << "policy " << static_cast<int>(policy);
      args.blocks = nullptr;
      fovea::SketchKernels<float>{}.select(args);
      for (const Index all : looked_at) EXPECT_EQ(all, keys);
    });
  }
}

}  // namespace fovea_test::attention_sketch_blocks
