// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// The choice of keys by a sketch against the oracle that sorts all scores, at every level, and
/// against direct sampling; including NaN in the sketch, ties and edge cases.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "attention/sketch_problem.hpp"
#include "support/levels.hpp"

namespace fovea_test::attention_sketch_selection {

/// Every level chooses as the oracle does, and all of them the same keys.
template <class T>
void expect_oracle(const BirdProblem<T>& problem, const SmartBirdOptions& options,
                   const View<const T>& draws = {}) {
  const SmartBirdAttention op(options);
  AllInputs<T> in = problem.inputs();
  in.draws = draws;
  std::vector<Index> first;
  at_each_level([&] {
    const IndexTensor chosen = op.select(in.sketch(), problem.sizes.heads);
    if (!first.empty()) {
      EXPECT_EQ(first, values_of(chosen.view())) << "another level chose otherwise";
      return;
    }
    first = values_of(chosen.view());
    const Share share = expect_choice(options, chosen.view(), in);
    // Of 64 keys almost alike, rounding may order a few.
    EXPECT_LE(share.undecided * 50, share.rows + 49) << "the oracle decides too little";
  });
}

struct Setting {
  BirdSizes sizes;
  Index keys_per_row;
  double deviation;  // of the sketch's queries
};

const std::array kSettings = {
    Setting{{.heads = 3, .queries = 70, .keys = 70}, 20, 1},
    Setting{{.batch = 2, .heads = 2, .queries = 9, .keys = 1300}, 20, 1},
    Setting{{.heads = 2, .queries = 12, .keys = 900, .sketch_width = 3}, 5, 4},
    Setting{{.heads = 1, .queries = 12, .keys = 700, .sketch_width = 8}, 80, 0.3},
    Setting{{.heads = 2, .queries = 6, .keys = 2500, .sketch_width = 4}, 1, 2},
    Setting{{.heads = 2, .queries = 17, .keys = 33, .sketch_width = 1}, 32, 1},
    Setting{{.heads = 2, .queries = 5, .keys = 600, .sketch_width = 0}, 20, 1},
};

template <class T>
void expect_all(SamplingPolicy policy) {
  for (const Setting& setting : kSettings) {
    // Without columns all weights are equal: TiesGoToTheSmallerKey.
    if (policy == SamplingPolicy::top_k && setting.sizes.sketch_width == 0) continue;
    const BirdProblem<T> problem(setting.sizes, setting.deviation);
    for (const bool causal : {false, true}) {
      SCOPED_TRACE("keys " + std::to_string(setting.sizes.keys) + (causal ? ", causal" : ""));
      expect_oracle(
          problem,
          {.keys_per_row = setting.keys_per_row, .policy = policy, .seed = 7, .causal = causal});
    }
  }
}

class SketchSelection : public testing::TestWithParam<SamplingPolicy> {};

TEST_P(SketchSelection, MatchesTheOracle) {
  expect_all<float>(GetParam());
  expect_all<double>(GetParam());
}

/// Draws that are given instead of the seed's, and the seed's own given.
TEST_P(SketchSelection, SupportsDraws) {
  const BirdProblem<float> problem({.heads = 2, .queries = 8, .keys = 700});
  Tensor<float> draws({1, 2, 8, 700});
  draws.fill([](Index b, Index h, Index i, Index j) { return uniform(hash(9, b, h, i, j)); });
  const SmartBirdOptions options{.policy = GetParam(), .seed = 3};
  expect_oracle<float>(problem, options, draws.view());
  draws.fill([](Index b, Index h, Index i, Index j) {
    return fovea::uniform_draw<float>(3, b, h, i + 692, j);
  });
  AllInputs<float> in = problem.inputs();
  const SmartBirdAttention op(options);
  const IndexTensor by_seed = op.select(in.sketch(), 2);
  in.draws = draws.view();
  EXPECT_EQ(values_of(by_seed.view()), values_of(op.select(in.sketch(), 2).view()));
}

/// Those of packed sequences, whose columns are keys of all sequences.
TEST_P(SketchSelection, SupportsDrawsOfPackedSequences) {
  BirdProblem<float> problem({.heads = 2, .queries = 12, .keys = 120});
  problem.cu_q = {0, 5, 12};
  problem.cu_k = {0, 50, 120};
  Tensor<float> draws({1, 2, 12, 120});
  draws.fill([](Index b, Index h, Index i, Index j) { return uniform(hash(9, b, h, i, j)); });
  expect_oracle<float>(problem, {.keys_per_row = 5, .policy = GetParam()}, draws.view());
}

/// Whatever a sample of vectors shows of a row, the others may hide better keys, or as good ones.
TEST_P(SketchSelection, IsNotMisledByASample) {
  for (const Index lanes : {2, 4, 8, 16}) {
    for (const double gap : {-3.0, -0.22, 0.05002, 0.22, 0.5}) {
      BirdProblem<float> problem({.heads = 3, .queries = 4, .keys = 1300, .sketch_width = 1});
      problem.sketch_q.fill(constant(1));
      problem.sketch_k.fill([&](Index, Index, Index j, Index) {
        // Of this many keys, every third vector is looked at.
        const double noise = 0.05 / 1300 * static_cast<double>(j * 7919 % 1300);
        return (j / lanes % 3 == 0 ? gap : 0) + noise;
      });
      SCOPED_TRACE("lanes " + std::to_string(lanes) + ", gap " + std::to_string(gap));
      expect_oracle(problem, {.policy = GetParam()});
    }
  }
}

/// Poisoned keys beyond what is visible change nothing.
TEST_P(SketchSelection, DoesNotReadInvisibleKeys) {
  BirdProblem<float> problem({.heads = 2, .queries = 40, .keys = 40});
  problem.key_lengths = {29};
  const SmartBirdAttention op({.keys_per_row = 6, .policy = GetParam(), .causal = true});
  const IndexTensor before = op.select(problem.inputs().sketch(), 2);
  for (Index j = 20; j < 40; ++j) {
    for (Index c = 0; c < 4; ++c) {
      problem.sketch_k(0, 0, j, c) = c % 2 == 0 ? std::numeric_limits<float>::quiet_NaN()
                                                : std::numeric_limits<float>::infinity();
    }
  }
  const IndexTensor after = op.select(problem.inputs().sketch(), 2);
  for (Index h = 0; h < 2; ++h) {
    for (Index i = 0; i < 20; ++i) {
      EXPECT_EQ(keys_of(before.view(), 0, h, i), keys_of(after.view(), 0, h, i)) << "row " << i;
    }
  }
}

/// Any layout of the sketch, of the draws and of the indices.
TEST_P(SketchSelection, SupportsAnyStrides) {
  const BirdProblem<float> problem({.batch = 2, .heads = 3, .queries = 21, .keys = 45});
  const SmartBirdAttention op({.keys_per_row = 7, .policy = GetParam()});
  const std::vector<Index> expected = values_of(op.select(problem.inputs().sketch(), 3).view());
  const Layout odd{.order = {3, 0, 2, 1}, .offset = 5, .innermost = 2, .gap = 3};
  const Tensor<float> sq = problem.sketch_q.in(odd);
  const Tensor<float> sk = problem.sketch_k.in(
      {.order = {2, 1, 3, 0}, .offset = 1, .gap = 2, .reversed = {true, false, true, true}});
  AllInputs<float> in = problem.inputs();
  in.sketch_q = sq.view();
  in.sketch_k = sk.view();
  std::vector<Index> memory(2 * 3 * 21 * 7 * 2, -5);
  const View<Index> indices(memory.data(), {2, 3, 21, 7}, {2, 4, 12, 252});
  op.select(in.sketch(), indices);
  EXPECT_EQ(expected, values_of(indices));
  for (std::size_t n = 1; n < memory.size(); n += 2) EXPECT_EQ(memory[n], -5) << "a gap";
}

INSTANTIATE_TEST_SUITE_P(Policies, SketchSelection, testing::ValuesIn(kPolicies), policy_name);

/// The share of rows that rounding decides, for the benchmark's data: printed, and small.
TEST(SketchSelectionMargin, FewRowsAreLeftToRounding) {
  const BirdProblem<float> problem({.heads = 2, .queries = 150, .keys = 4096});
  Share share;
  const AllInputs<float> in = problem.inputs();
  for (const SamplingPolicy policy : kPolicies) {
    const SmartBirdOptions options{.policy = policy};
    const IndexTensor chosen = SmartBirdAttention(options).select(in.sketch(), 2);
    const Share of_policy = expect_choice(options, chosen.view(), in);
    share.undecided += of_policy.undecided;
    share.rows += of_policy.rows;
  }
  std::printf("rows that rounding decides: %td of %td\n", share.undecided, share.rows);
  EXPECT_LE(share.undecided * 100, share.rows);
}

TEST(SketchSelectionEdges, TiesGoToTheSmallerKey) {
  BirdProblem<float> problem({.heads = 2, .queries = 4, .keys = 700});
  problem.sketch_q.fill(constant(0));
  const IndexTensor chosen =
      SmartBirdAttention({.keys_per_row = 5, .policy = SamplingPolicy::top_k})
          .select(problem.inputs().sketch(), 2);
  EXPECT_EQ(keys_of(chosen.view(), 0, 1, 3), (std::vector<Index>{0, 1, 2, 3, 4}));
}

/// Key 11 has weight 1, however its draw falls; the others have weight 0, so p = 0: ties.
TEST(SketchSelectionEdges, AKeyOfWeightOneIsAlwaysKept) {
  BirdProblem<float> problem({.heads = 4, .queries = 50, .keys = 40});
  problem.sketch_q.fill(first_column([](Index) { return 1e4; }));
  problem.sketch_k.fill(first_column([](Index j) { return j == 11 ? 1e4 : -1e4; }));
  for (const SamplingPolicy policy :
       {SamplingPolicy::squared_inverse_log, SamplingPolicy::inverse_log, SamplingPolicy::raw}) {
    const IndexTensor chosen = SmartBirdAttention({.keys_per_row = 2, .policy = policy})
                                   .select(problem.inputs().sketch(), 4);
    for (Index i = 0; i < 50; ++i) {
      const std::vector<Index> keys = keys_of(chosen.view(), 0, i % 4, i);
      EXPECT_EQ(std::count(keys.begin(), keys.end(), 11), 1);
    }
  }
}

TEST(SketchSelectionEdges, AWeightOfZeroIsStillAVisibleKey) {
  BirdProblem<float> problem({.heads = 1, .queries = 3, .keys = 40});
  constexpr float infinity = std::numeric_limits<float>::infinity();
  problem.sketch_q.fill(first_column([](Index) { return 1.0; }));
  problem.sketch_k.fill(first_column([](Index j) { return j < 37 ? 0.0 : 1.0; }));
  for (Index j = 0; j < 37; ++j) problem.sketch_k(0, 0, j, 0) = -infinity;
  const IndexTensor chosen =
      SmartBirdAttention({.keys_per_row = 5}).select(problem.inputs().sketch(), 1);
  // Three keys have weight 1/3; of the others, all of score 0, the first two.
  EXPECT_EQ(keys_of(chosen.view(), 0, 0, 1), (std::vector<Index>{0, 1, 37, 38, 39}));
}

TEST(SketchSelectionEdges, ANaNSketchKeepsTheFirstKeys) {
  BirdProblem<float> problem({.heads = 2, .queries = 30, .keys = 30});
  problem.sketch_k(0, 0, 12, 1) = std::numeric_limits<float>::quiet_NaN();
  const IndexTensor chosen =
      SmartBirdAttention({.keys_per_row = 3, .causal = true}).select(problem.inputs().sketch(), 2);
  for (Index i = 12; i < 30; ++i) {
    EXPECT_EQ(keys_of(chosen.view(), 0, 1, i), (std::vector<Index>{0, 1, 2}));
  }
}

/// The probabilities of the 15 pairs of 6 keys, from many direct samples, compared with the
/// operator's frequencies: chi-square with 14 degrees of freedom.
TEST(SketchSelectionDistribution, EqualsDirectSampling) {
  constexpr Index keys = 6;
  constexpr Index heads = 64;
  constexpr Index rows = 400;
  BirdProblem<float> problem({.heads = heads, .queries = rows, .keys = keys});
  problem.sketch_q.fill(first_column([](Index) { return 1.0; }));
  problem.sketch_k.fill(first_column([](Index j) { return 0.8 * static_cast<double>(j); }));
  for (const SamplingPolicy policy :
       {SamplingPolicy::squared_inverse_log, SamplingPolicy::inverse_log, SamplingPolicy::raw,
        SamplingPolicy::random}) {
    const SmartBirdOptions options{.keys_per_row = 2, .policy = policy, .seed = 12345};
    const AllInputs<float> in = problem.inputs();
    const OracleSequence sequence = oracle_sequences(in)[0];
    const OracleSketch<float> sketch = oracle_sketch(in, options, sequence, 0, keys);
    std::map<std::array<Index, 2>, double> chance;
    std::mt19937_64 generator(1);
    std::uniform_real_distribution<double> uniform_real;
    constexpr int trials = 2'000'000;
    for (int n = 0; n < trials; ++n) {
      std::array<double, keys> score{};
      for (Index j = 0; j < keys; ++j) {
        score[as_size(j)] = oracle_score<float>(policy, uniform_real(generator),
                                                sketch.lse - sketch.logits[as_size(j)], 0)
                                .value;
      }
      const auto best = std::max_element(score.begin(), score.end());
      const auto first = static_cast<Index>(best - score.begin());
      *best = -1;
      const auto second =
          static_cast<Index>(std::max_element(score.begin(), score.end()) - score.begin());
      chance[{std::min(first, second), std::max(first, second)}] += 1.0 / trials;
    }
    const IndexTensor chosen = SmartBirdAttention(options).select(in.sketch(), heads);
    std::map<std::array<Index, 2>, double> count;
    for (Index h = 0; h < heads; ++h) {
      for (Index i = 0; i < rows; ++i) {
        count[{chosen(0, h, i, 0), chosen(0, h, i, 1)}] += 1;
      }
    }
    double chi_square = 0;
    for (const auto& [pair, p] : chance) {
      const double expected = p * heads * rows;
      const double difference = count[pair] - expected;
      chi_square += difference * difference / expected;
    }
    EXPECT_EQ(chance.size(), 15u);
    EXPECT_LT(chi_square, 36.1) << "policy " << static_cast<int>(policy) << ": 1 in 1000 beyond";
  }
}

}  // namespace fovea_test::attention_sketch_selection
