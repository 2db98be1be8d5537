// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED HEAP)
/// \file
/// Reformer attention: against its oracle with every option; bits for any threads, levels, strides
/// and batch; key lengths as sequences alone; NaN; central differences; the union of candidates;
/// memory.
#include "fovea/attention/reformer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attention/reformer_problem.hpp"
#include "support/levels.hpp"
#include "support/same_everywhere.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_reformer {

static_assert(fovea::DifferentiableAttention<ReformerAttention, float>);
static_assert(fovea::DifferentiableAttention<ReformerAttention, double>);
static_assert(!fovea::IncrementalAttention<ReformerAttention, float>);

template <class T>
void expect_conforms(const ReformerOptions& options, const ReformerProblem<T>& p) {
  const auto judge = reformer_judge(options, p);
  at_each_level([&] {
    const CallResult<T> got = run_call(ReformerAttention(options), p);
    judge(got, "reformer");
    EXPECT_TRUE(same_bits(got, run_call(ReformerAttention(options), p, nullptr, {}, false)));
  });
}

/// Every combination of what hides and what corrects.
std::vector<ReformerOptions> all_options(Index chunk, Index rounds, Index buckets) {
  std::vector<ReformerOptions> all;
  for (const FirstChunk before : {FirstChunk::wrap, FirstChunk::none, FirstChunk::previous_round}) {
    for (int bits = 0; bits < 8; ++bits) {
      ReformerOptions options{.chunk = chunk, .rounds = rounds, .buckets = buckets};
      options.before_first = before;
      options.causal = (bits & 1) != 0;
      options.across_buckets = (bits & 2) == 0;
      options.correct_duplicates = (bits & 4) != 0;
      if (bits % 3 == 0) options.scale = -0.7;
      options.seed = 0x123456789abcdef;
      all.push_back(options);
    }
  }
  return all;
}

template <class T>
class Reformer : public testing::Test {};
TYPED_TEST_SUITE(Reformer, Scalars);

TYPED_TEST(Reformer, ConformsWithEveryOption) {
  struct Case {
    Index rows, chunk, rounds, buckets;
  };
  for (const Case& c : {Case{1, 1, 1, 2}, Case{6, 1, 2, 4}, Case{12, 4, 3, 4}, Case{16, 16, 2, 4},
                        Case{60, 20, 2, 6}, Case{96, 16, 4, 8}, Case{130, 65, 2, 4}}) {
    for (const ReformerOptions& options : all_options(c.chunk, c.rounds, c.buckets)) {
      SCOPED_TRACE(std::to_string(c.rows) + " rows, " + describe(options));
      expect_conforms(options, ReformerProblem<TypeParam>({.rows = c.rows}));
    }
  }
}

/// Chunks of more rows than the kernels take at once, and more chunks than a task has.
TYPED_TEST(Reformer, ConformsInLongChunksAndManyOfThem) {
  expect_conforms({.chunk = 300, .rounds = 2, .buckets = 2},
                  ReformerProblem<TypeParam>({.rows = 600, .width = 3, .value_width = 2}));
  for (const FirstChunk before : {FirstChunk::wrap, FirstChunk::none, FirstChunk::previous_round}) {
    ReformerOptions options{.chunk = 4, .rounds = 2, .buckets = 8};
    options.before_first = before;
    for (const Index rows : {132, 128, 4 * 17}) {
      expect_conforms(options, ReformerProblem<TypeParam>({.rows = rows, .width = 3}));
    }
  }
}

TYPED_TEST(Reformer, ConformsAtAnyWidth) {
  for (const Index width : {0, 1, 4, 7, 16, 33, 64, 80}) {
    const ReformerOptions options{.chunk = 8, .rounds = 2, .buckets = 2 + 2 * (width % 20)};
    expect_conforms(options, ReformerProblem<TypeParam>(
                                 {.rows = 48, .width = width, .value_width = 81 - width}));
    expect_conforms(options,
                    ReformerProblem<TypeParam>({.rows = 48, .width = width, .value_width = width}));
  }
}

TYPED_TEST(Reformer, ConformsWithLengthsHeadsAndAProjection) {
  for (const ReformerOptions& options : all_options(8, 3, 6)) {
    ReformerProblem<TypeParam> p({.batch = 6, .heads = 2, .rows = 40});
    p.key_lengths = {40, 0, 1, 8, 29, 32};
    p.projection.emplace(Shape{1, 3, 8, 3});
    p.projection->fill(gaussian(77));
    SCOPED_TRACE(describe(options));
    expect_conforms(options, p);
  }
}

/// Rows of any length: so short that it is not what they are divided by, 0, and huge.
TYPED_TEST(Reformer, ConformsForRowsOfAnyLength) {
  for (const double size : {0.0, 1e-30, 1e-14, 1e-5, 30.0, 1e4}) {
    ReformerProblem<TypeParam> p({.rows = 24});
    p.qk.fill(gaussian(3, size));
    SCOPED_TRACE(size);
    expect_conforms({.chunk = 4, .rounds = 2, .buckets = 4, .causal = true}, p);
  }
}

/// With the correction, rows that several rounds find count once: softmax over the union.
TYPED_TEST(Reformer, CorrectedEqualsSoftmaxOverTheUnion) {
  using T = TypeParam;
  using W = Wide<T>;
  for (ReformerOptions options : all_options(8, 4, 4)) {
    options.correct_duplicates = true;
    const ReformerProblem<T> p({.rows = 48});
    const fovea::ReformerInputs<T> in = p.inputs();
    const OracleHashes<T> hashes(in, options, 0, 0);
    const CallResult<T> got = run_call(ReformerAttention(options), p);
    for (Index i = 0; i < 48; ++i) {
      std::vector<bool> seen(48);
      for (Index r = 0; r < options.rounds; ++r) {
        for (const Index j : hashes.candidates(r, i)) seen[as_size(j)] = true;
      }
      W sum = 0;
      W out = 0;
      bool others = false;
      for (Index j = 0; j < 48; ++j) {
        if (!seen[as_size(j)] || j == i) continue;
        W s = 0;
        for (Index d = 0; d < 8; ++d) s += hashes.x(i, d) * hashes.key(j, d);
        others = true;
        sum += std::exp(hashes.scale() * s);
        out += std::exp(hashes.scale() * s) * W{p.v(0, 0, j, 2)};
      }
      const W expected = others ? out / sum : W{p.v(0, 0, i, 2)};
      EXPECT_NEAR(static_cast<double>(got["out"][as_size(i * 5 + 2)]),
                  static_cast<double>(expected), 100 * std::numeric_limits<T>::epsilon())
          << i << ", " << describe(options);
    }
  }
}

TYPED_TEST(Reformer, BitsDoNotDependOnThreadsLevelsAndStrides) {
  using T = TypeParam;
  for (const ReformerOptions& options : all_options(10, 3, 10)) {
    const auto make = [](const Layout& layout) {
      ReformerProblem<T> p({.batch = 2, .heads = 2, .rows = 400, .width = 19, .value_width = 17}, 1,
                           layout);
      p.key_lengths = {400, 211};
      return p;
    };
    expect_same_bits_everywhere(
        make, [&](const ReformerProblem<T>& p, AnyExecutor* executor, const Layout& layout) {
          return run_call(ReformerAttention(options), p, executor, layout);
        });
  }
}

/// A sequence among others, and one with a length that chunks divide, are that sequence alone; what
/// is beyond the length may be NaN.
TYPED_TEST(Reformer, SequencesAreIndependent) {
  using T = TypeParam;
  for (const ReformerOptions& options : all_options(8, 2, 6)) {
    const ReformerAttention op(options);
    ReformerProblem<T> all({.batch = 2, .heads = 3, .rows = 64});
    all.key_lengths = {64, 40};
    for_each_index({1, 3, 24, 5}, [&](Index, Index h, Index n, Index d) {
      all.qk(1, h, 40 + n, d) = std::numeric_limits<T>::quiet_NaN();
      all.v(1, h, 40 + n, d) = std::numeric_limits<T>::infinity();
    });
    const CallResult<T> got = run_call(op, all);
    ReformerProblem<T> one({.rows = 40});
    one.qk.fill([&](Index, Index, Index n, Index d) { return double{all.qk(1, 2, n, d)}; });
    one.v.fill([&](Index, Index, Index n, Index d) { return double{all.v(1, 2, n, d)}; });
    one.d_out.fill([&](Index, Index, Index n, Index d) { return double{all.d_out(1, 2, n, d)}; });
    const CallResult<T> alone = run_call(op, one);
    const Index at = 5 * 64;
    EXPECT_TRUE(same_bits(&got["out"][as_size(at * 5)], alone["out"].data(), 200, {1, 1, 40, 5}));
    EXPECT_TRUE(same_bits(&got["lse"][as_size(at)], alone["lse"].data(), 40, {1, 1, 40, 1}));
    EXPECT_TRUE(same_bits(&got["d_qk"][as_size(at * 8)], alone["d_qk"].data(), 320, {1, 1, 40, 8}));
    EXPECT_TRUE(same_bits(&got["d_v"][as_size(at * 5)], alone["d_v"].data(), 200, {1, 1, 40, 5}));
    for (Index n = 40; n < 64; ++n) {
      EXPECT_EQ(got["out"][as_size((at + n) * 5 + 1)], 0);
      EXPECT_FALSE(std::signbit(got["d_qk"][as_size((at + n) * 8)]));
      EXPECT_EQ(got["d_qk"][as_size((at + n) * 8)], 0);
      EXPECT_EQ(got["lse"][as_size(at + n)], -std::numeric_limits<T>::infinity());
    }
  }
}

/// A NaN in a row makes that row NaN, and the rows that it is a candidate of.
TYPED_TEST(Reformer, NanReachesTheRowsThatSeeIt) {
  using T = TypeParam;
  for (const bool in_values : {false, true}) {
    const ReformerOptions options{.chunk = 8, .rounds = 2, .buckets = 6};
    const ReformerAttention op(options);
    ReformerProblem<T> p({.rows = 64});
    (in_values ? p.v : p.qk)(0, 0, 21, 3) = std::numeric_limits<T>::quiet_NaN();
    std::vector<Index> buckets(128);
    op.buckets(p.inputs(), View<Index>(buckets.data(), {1, 1, 2, 64}));
    EXPECT_EQ(buckets[21], in_values ? buckets[21] : -1);
    const CallResult<T> got = run_call(op, p);
    for (Index i = 0; i < 64; ++i) {
      bool sees = i == 21;
      for (Index r = 0; r < 2; ++r) {
        std::vector<Index> order;
        for (Index b = 0; b < 6; ++b) {
          for (Index j = 0; j < 64; ++j) {
            if (std::max<Index>(0, buckets[as_size(r * 64 + j)]) == b) order.push_back(j);
          }
        }
        const auto chunk = [&](Index j) {
          return (std::find(order.begin(), order.end(), j) - order.begin()) / 8;
        };
        sees = sees || chunk(21) == chunk(i) || chunk(21) == (chunk(i) + 7) % 8;
      }
      EXPECT_EQ(std::isnan(got["out"][as_size(i * 5 + 3)]), sees) << i;
    }
  }
}

/// A NaN in the projection leaves no row a bucket; nothing hangs, and every row is NaN.
TYPED_TEST(Reformer, NanInTheProjectionReachesAllRows) {
  using T = TypeParam;
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    ReformerProblem<T> p({.rows = 32});
    p.projection.emplace(Shape{1, 2, 8, 3});
    p.projection->fill(gaussian(5));
    (*p.projection)(0, 1, 4, 2) = static_cast<T>(bad);
    const CallResult<T> got =
        run_call(ReformerAttention({.chunk = 8, .rounds = 2, .buckets = 6}), p);
    for (const T x : got["out"]) EXPECT_EQ(std::isnan(x), std::isnan(bad));
    for (const T x : got["d_v"]) EXPECT_EQ(std::isnan(x), std::isnan(bad));
  }
}

TEST(ReformerDifferences, OfEveryInput) {
  for (const ReformerOptions& options : all_options(4, 2, 4)) {
    SCOPED_TRACE(describe(options));
    expect_differences(ReformerAttention(options),
                       ReformerProblem<double>({.rows = 12, .width = 3, .value_width = 2}));
  }
}

/// Chunks of whole cache lines, whose tables have no gaps.
TYPED_TEST(Reformer, StaysWithinItsMemory) {
  using T = TypeParam;
  const ReformerAttention op({.chunk = 8, .rounds = 1, .buckets = 2, .across_buckets = false});
  between_fences(
      [&] { run_call(op, ReformerProblem<T>({.rows = 32, .width = 16, .value_width = 16})); });
}

TYPED_TEST(Reformer, FailedAllocations) {
  ReformerProblem<TypeParam> p({.batch = 2, .heads = 2, .rows = 100});
  p.key_lengths = {100, 63};
  expect_all_or_nothing_of(
      ReformerAttention({.chunk = 10, .rounds = 2, .buckets = 4, .correct_duplicates = true}), p);
}

TYPED_TEST(Reformer, RunsInAnArenaOfTheStatedSize) {
  const ReformerProblem<TypeParam> p({.batch = 2, .heads = 2, .rows = 200});
  expect_serves_in_arena(
      ReformerAttention({.chunk = 10, .rounds = 3, .buckets = 12, .causal = true}), p,
      fovea::shape_of(p.inputs()));
}

}  // namespace fovea_test::attention_reformer
