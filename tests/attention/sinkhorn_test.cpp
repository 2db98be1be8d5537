// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED HEAP)
/// \file
/// Sinkhorn attention: against its oracle; bits for any threads, levels, strides and batch; key
/// lengths as sequences alone; NaN; central differences; what the normalisation makes; memory.
#include "fovea/attention/sinkhorn.hpp"
#include "fovea/attention/sinkhorn/passes.hpp"
#include "fovea/attention/sinkhorn/sorting_weights.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attention/sinkhorn_problem.hpp"
#include "support/levels.hpp"
#include "support/same_everywhere.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_sinkhorn {

static_assert(fovea::DifferentiableAttention<SinkhornAttention, float>);
static_assert(fovea::DifferentiableAttention<SinkhornAttention, double>);
static_assert(!fovea::IncrementalAttention<SinkhornAttention, float>);

template <class T>
void expect_conforms(const SinkhornOptions& options, const SortProblem<T>& p) {
  const auto judge = sinkhorn_judge(options, p);
  at_each_level([&] { judge(run_call(SinkhornAttention(options), p), "sinkhorn"); });
}

template <class T>
class Sinkhorn : public testing::Test {};
TYPED_TEST_SUITE(Sinkhorn, Scalars);

TYPED_TEST(Sinkhorn, ConformsAtAnySizeAndNumberOfIterations) {
  for (const auto& [rows, block] : {std::pair<Index, Index>{1, 1},
                                    {5, 1},
                                    {6, 6},
                                    {12, 4},
                                    {60, 20},
                                    {96, 8},
                                    {130, 65},
                                    {70, 1}}) {
    for (const Index iterations : {0, 1, 2, 7}) {
      SCOPED_TRACE(std::to_string(rows) + " rows, block " + std::to_string(block));
      SinkhornOptions options{.block = block, .iterations = iterations};
      if (iterations == 2) options.scale = -0.7;
      expect_conforms(options, SortProblem<TypeParam>({.rows = rows, .block = block}));
    }
  }
}

/// Blocks of more rows than the kernels take at once.
TYPED_TEST(Sinkhorn, ConformsInLongBlocks) {
  expect_conforms(
      {.block = 530, .iterations = 1},
      SortProblem<TypeParam>({.rows = 1060, .width = 2, .value_width = 2, .block = 530}));
}

TYPED_TEST(Sinkhorn, ConformsAtAnyWidth) {
  for (const Index width : {0, 1, 4, 7, 16, 33, 64, 80}) {
    for (const Index value_width : {width, 81 - width}) {
      expect_conforms({.block = 4, .iterations = 2},
                      SortProblem<TypeParam>(
                          {.rows = 20, .width = width, .value_width = value_width, .block = 4}));
    }
  }
}

TYPED_TEST(Sinkhorn, ConformsWithGroupedHeadsAndLengths) {
  SortProblem<TypeParam> p({.batch = 4, .heads = 6, .key_heads = 2, .rows = 24, .block = 4});
  p.key_lengths = {24, 0, 4, 16};
  expect_conforms({.block = 4, .iterations = 3}, p);
}

TYPED_TEST(Sinkhorn, ConformsForLargeLogits) {
  for (const double size : {0.0, 10.0, 60.0}) {
    SortProblem<TypeParam> p({.rows = 24, .block = 4});
    p.q.fill(gaussian(3, size));
    expect_conforms({.block = 4, .iterations = 2}, p);
    SortProblem<TypeParam> r({.rows = 24, .block = 4});
    r.sorting.fill(gaussian(3, size));
    expect_conforms({.block = 4, .iterations = 4}, r);
  }
}

/// After many iterations, all rows and columns of the weights sum to 1: values of 1 stay so.
TYPED_TEST(Sinkhorn, WeightsBecomeDoublyStochastic) {
  using T = TypeParam;
  const SortProblem<T> p({.rows = 12, .block = 2});
  const fovea::SortingWeights<T> normalisation(100);
  std::vector<T> weights(36);
  std::vector<T> scratch(as_size(fovea::SortingWeights<T>::scratch_elements(6)));
  normalisation.compute({p.sorting.view().data(), 6, 1}, 6, weights.data(), scratch.data());
  for (std::size_t a = 0; a < 6; ++a) {
    T row = 0;
    T column = 0;
    for (std::size_t c = 0; c < 6; ++c) {
      row += weights[a * 6 + c];
      column += weights[c * 6 + a];
    }
    EXPECT_NEAR(row, 1, 100 * std::numeric_limits<T>::epsilon());
    EXPECT_NEAR(column, 1, 100 * std::numeric_limits<T>::epsilon());
  }
}

TYPED_TEST(Sinkhorn, BitsDoNotDependOnThreadsLevelsAndStrides) {
  using T = TypeParam;
  for (const Index block : {1, 7, 42}) {
    const auto make = [&](const Layout& layout) {
      const SortSizes s{.batch = 2,
                        .heads = 4,
                        .key_heads = 2,
                        .rows = 126,
                        .width = 19,
                        .value_width = 17,
                        .block = block};
      SortProblem<T> p(s, 1, layout);
      p.key_lengths = {126, 84};
      return p;
    };
    expect_same_bits_everywhere(make, [&](const SortProblem<T>& p, AnyExecutor* executor,
                                          const Layout& layout) {
      return run_call(SinkhornAttention({.block = block, .iterations = 3}), p, executor, layout);
    });
  }
}

/// Contiguous columns, as in a transposed matrix.
TYPED_TEST(Sinkhorn, TransposedKeysDoNotChangeBits) {
  using T = TypeParam;
  const SinkhornOptions options{.block = 7, .iterations = 2};
  const SortProblem<T> p({.rows = 42, .width = 6, .value_width = 4, .block = 7});
  const Tensor<T> k({1, 1, 6, 42}), v({1, 1, 4, 42});
  k.fill([&](Index, Index, Index d, Index n) { return p.k(0, 0, n, d); });
  v.fill([&](Index, Index, Index d, Index n) { return p.v(0, 0, n, d); });
  auto in = p.inputs();
  in.k = View<const T>(&k(0, 0, 0, 0), p.k.shape(), {0, 0, 1, 42});
  in.v = View<const T>(&v(0, 0, 0, 0), p.v.shape(), {0, 0, 1, 42});
  const Tensor<T> out(p.d_out.shape());
  SinkhornAttention(options).forward(in, out.view());
  EXPECT_TRUE(same_bits(out.values(), run_call(SinkhornAttention(options), p)["out"]));
}

/// The last block's rows are the last of all tensors.
TYPED_TEST(Sinkhorn, StaysWithinItsTensors) {
  between_fences([] {
    run_call(SinkhornAttention({.block = 8, .iterations = 2}),
             SortProblem<TypeParam>({.rows = 32, .width = 16, .value_width = 16, .block = 8}));
  });
}

/// The problem of a head alone, whose last rows may be missing.
template <class T>
SortProblem<T> head_of(const SortProblem<T>& p, Index b, Index h, const SortSizes& sizes) {
  SortProblem<T> one(sizes);
  for (const auto x : {&SortProblem<T>::q, &SortProblem<T>::k, &SortProblem<T>::v,
                       &SortProblem<T>::sorting, &SortProblem<T>::d_out}) {
    (one.*x).fill([&](Index, Index, Index n, Index d) { return double{(p.*x)(b, h, n, d)}; });
  }
  return one;
}

/// A sequence among others, and one with a length, are that sequence alone; what is beyond the
/// length may be NaN.
TYPED_TEST(Sinkhorn, SequencesAreIndependent) {
  using T = TypeParam;
  const SinkhornOptions options{.block = 8, .iterations = 3};
  SortProblem<T> all({.batch = 2, .heads = 3, .key_heads = 3, .rows = 64, .block = 8});
  all.key_lengths = {64, 40};
  for_each_index({1, 3, 24, 5}, [&](Index, Index h, Index n, Index d) {
    all.q(1, h, 40 + n, d) = std::numeric_limits<T>::quiet_NaN();
    all.k(1, h, 40 + n, d) = std::numeric_limits<T>::quiet_NaN();
    all.v(1, h, 40 + n, d) = std::numeric_limits<T>::infinity();
  });
  for_each_index({1, 3, 8, 8}, [&](Index, Index h, Index u, Index w) {
    if (u >= 5 || w >= 5) all.sorting(1, h, u, w) = std::numeric_limits<T>::quiet_NaN();
  });
  const CallResult<T> got = run_call(SinkhornAttention(options), all);
  const SortProblem<T> one = head_of(all, 1, 2, {.rows = 40, .block = 8});
  const CallResult<T> alone = run_call(SinkhornAttention(options), one);
  const Index at = 5 * 64;
  EXPECT_TRUE(same_bits(&got["out"][as_size(at * 5)], alone["out"].data(), 200, {1, 1, 40, 5}));
  EXPECT_TRUE(same_bits(&got["lse"][as_size(at)], alone["lse"].data(), 40, {1, 1, 40, 1}));
  EXPECT_TRUE(same_bits(&got["d_q"][as_size(at * 8)], alone["d_q"].data(), 320, {1, 1, 40, 8}));
  EXPECT_TRUE(same_bits(&got["d_k"][as_size(at * 8)], alone["d_k"].data(), 320, {1, 1, 40, 8}));
  EXPECT_TRUE(same_bits(&got["d_v"][as_size(at * 5)], alone["d_v"].data(), 200, {1, 1, 40, 5}));
  for (Index u = 0; u < 8; ++u) {
    for (Index w = 0; w < 8; ++w) {
      const T expected = u < 5 && w < 5 ? alone["d_sorting"][as_size(u * 5 + w)] : T{0};
      EXPECT_EQ(got["d_sorting"][as_size((5 * 8 + u) * 8 + w)], expected);
    }
  }
  for (Index n = 40; n < 64; ++n) {
    for (const T x : {got["out"][as_size((at + n) * 5)], got["d_q"][as_size((at + n) * 8)],
                      got["d_k"][as_size((at + n) * 8)], got["d_v"][as_size((at + n) * 5)]}) {
      EXPECT_EQ(x, 0);
      EXPECT_FALSE(std::signbit(x));
    }
    EXPECT_EQ(got["lse"][as_size(at + n)], -std::numeric_limits<T>::infinity());
  }
}

/// A NaN of R reaches the block of queries whose logit it is, and through a normalisation all.
TYPED_TEST(Sinkhorn, NanOfASortingLogitReachesTheRowsThatDependOnIt) {
  using T = TypeParam;
  for (const Index iterations : {0, 1, 5}) {
    SortProblem<T> p({.rows = 24, .block = 4});
    p.sorting(0, 0, 3, 1) = std::numeric_limits<T>::quiet_NaN();
    const CallResult<T> got =
        run_call(SinkhornAttention({.block = 4, .iterations = iterations}), p);
    for (Index i = 0; i < 24; ++i) {
      EXPECT_EQ(std::isnan(got["out"][as_size(i * 5 + 2)]), iterations > 0 || i / 4 == 3) << i;
    }
  }
}

TEST(SinkhornDifferences, OfEveryInput) {
  for (const Index iterations : {0, 1, 3}) {
    expect_differences(
        SinkhornAttention({.block = 2, .iterations = iterations}),
        SortProblem<double>({.heads = 2, .rows = 6, .width = 3, .value_width = 2, .block = 2}));
  }
}

TYPED_TEST(Sinkhorn, RunsInAnArenaOfTheStatedSize) {
  const SortProblem<TypeParam> p(
      {.batch = 2, .heads = 4, .key_heads = 2, .rows = 200, .block = 10});
  expect_serves_in_arena(SinkhornAttention({.block = 10, .iterations = 3}), p,
                         fovea::shape_of(p.inputs()));
}

TYPED_TEST(Sinkhorn, FailedAllocations) {
  SortProblem<TypeParam> p({.batch = 2, .heads = 4, .key_heads = 2, .rows = 100, .block = 10});
  p.key_lengths = {100, 60};
  expect_all_or_nothing_of(SinkhornAttention({.block = 10, .iterations = 3}), p);
}

TEST(SinkhornGroups, MoreSequencesThanAreComputedAtOnce) {
  const SinkhornOptions options{.block = 64, .iterations = 2};
  const SortSizes many{.batch = 3,
                       .heads = 2,
                       .key_heads = 2,
                       .rows = 8192,
                       .width = 64,
                       .value_width = 64,
                       .block = 64};
  const SortProblem<float> p(many);
  ASSERT_LT(fovea::sinkhorn_sequences_at_once(options, fovea::shape_of(p.inputs())), 6);
  const CallResult<float> got = run_call(SinkhornAttention(options), p);
  const SortProblem<float> one =
      head_of(p, 2, 1, {.rows = 8192, .width = 64, .value_width = 64, .block = 64});
  const CallResult<float> alone = run_call(SinkhornAttention(options), one);
  const std::size_t size = 8192 * 64;
  EXPECT_TRUE(same_bits(&got["out"][5 * size], alone["out"].data(), size, {1, 1, 8192, 64}));
  EXPECT_TRUE(same_bits(&got["d_k"][5 * size], alone["d_k"].data(), size, {1, 1, 8192, 64}));
  EXPECT_TRUE(same_bits(&got["d_sorting"][5 * 128 * 128], alone["d_sorting"].data(), 128 * 128,
                        {1, 1, 128, 128}));
}

}  // namespace fovea_test::attention_sinkhorn
