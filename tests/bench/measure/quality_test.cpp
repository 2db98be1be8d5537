// SPDX-License-Identifier: MIT
// fovea_test(LINK fovea_bench_io)
// The results of fovea_quality for random heads: known answers, and properties that always hold.
#include "bench/measure/quality.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "bench/io/compare_input.hpp"
#include "bench/measure/head_kinds.hpp"
#include "bench/measure/quality_mixed.hpp"

namespace fovea_test::bench_measure_quality {

using bench::AllInputs;
using bench::Choice;
using bench::Found;
using bench::Index;
using bench::Result;
using fovea::ThreadPool;

constexpr Index kRows = 80;

/// Two key heads with two query heads each.
bench::HeadTensors heads() {
  const auto numbers = [](std::uint32_t stream, Index count) {
    return bench::gaussians<float>(1, stream, count * kRows * 8, 1.5F);
  };
  return {{1, 4, kRows, 8}, {1, 2, kRows, 8}, {1, 2, kRows, 8},
          numbers(0, 4),    numbers(1, 2),    numbers(2, 2)};
}

class Quality : public testing::Test {
 protected:
  explicit Quality(bool causal = true)
      : tensors_(heads()), in_(tensors_.first(kRows)), full_(in_), pool_(1) {
    fovea::FullAttention{{.causal = causal}}.forward(in_, full_.out_view, {full_.lse_view}, pool_);
  }

  Found found_of(const Choice& choice, Index head = 0) {
    if (choice.prepare) choice.prepare(in_, full_, pool_);
    const Result one(in_);
    choice.run(in_, one, pool_);
    return bench::found(one, full_, head);
  }

  /// The choice runs, and its share of the weight is one.
  void expect_share(const Choice& choice) {
    const Found found = found_of(choice, 3);
    EXPECT_TRUE(std::isfinite(found.distance)) << choice.name();
    EXPECT_LE(std::abs(found.cosine), 1 + 1e-9) << choice.name();
    EXPECT_GE(choice.workspace_bytes(fovea::shape_of(in_)), 0) << choice.name();
    if (!choice.has_pairs) return;
    EXPECT_GT(found.weight, 0) << choice.name();
    EXPECT_LE(found.weight, 1 + 1e-5) << choice.name();
    // As much of the values as the weight that is left out can carry is missing.
    if (found.weight > 1 - 1e-5) {
      EXPECT_LT(found.distance, 1e-3) << choice.name();
    }
  }

  bench::HeadTensors tensors_;
  AllInputs<float> in_;
  Result full_;
  ThreadPool pool_;
};

class QualityOfBothSides : public Quality {
 protected:
  QualityOfBothSides() : Quality(false) {}

  void expect_full(const Choice& choice, double bound = 1e-5) {
    for (Index h = 0; h < 4; ++h) EXPECT_LT(found_of(choice, h).distance, bound) << choice.name();
  }
};

TEST_F(Quality, FullAttentionHasNoError) {
  const Found found = found_of(bench::quality_choices()[0]);
  EXPECT_EQ(found.distance, 0);
  EXPECT_NEAR(found.cosine, 1, 1e-9);
  EXPECT_EQ(found.weight, 1);
}

TEST_F(Quality, EveryChoiceRunsAndHasAShareOfTheWeight) {
  for (const Choice& choice : bench::quality_choices()) expect_share(choice);
}

TEST_F(Quality, WiderWindowsHaveALargerShare) {
  std::map<std::string, double> last;
  for (const Choice& choice : bench::quality_choices()) {
    if (choice.system != "local" && choice.system != "longformer") continue;
    const double weight = found_of(choice).weight;
    EXPECT_GE(weight, last[choice.series]) << choice.parameter;
    last[choice.series] = weight;
  }
  EXPECT_EQ(last["window"], 1);  // 512 keys are all of them
}

TEST_F(QualityOfBothSides, EveryChoiceRunsAndHasAShareOfTheWeight) {
  std::vector<Choice> all = bench::quality_choices(false);
  for (Choice& choice : bench::mixed_choices(kRows)) all.push_back(std::move(choice));
  Index with_obstacle = 0;
  for (const Choice& choice : all) {
    if (choice.obstacle.empty()) {
      expect_share(choice);
    } else {
      ++with_obstacle;
    }
  }
  EXPECT_EQ(with_obstacle, 7);  // 80 rows: Nystroem and Sinkhorn want multiples of 32 and more
  EXPECT_EQ(bench::sinkhorn_choice(32, kRows).obstacle, "N = 80 is not a multiple of 32");
}

/// Where as much is computed as full attention has, it is full attention.
TEST_F(QualityOfBothSides, UnmixedOperatorsEqualFullAttention) {
  expect_full(bench::linformer_choice(kRows));
  expect_full(bench::sinkhorn_choice(kRows, kRows));
  expect_full(bench::fsat_choice(kRows, kRows));
  EXPECT_NEAR(found_of(bench::fsat_choice(kRows, kRows)).weight, 1, 1e-5);
  expect_full(bench::smart_bird_choice("", fovea::SamplingPolicy::top_k, kRows, false));
  // One landmark is the mean of all values; several come nearer.
  EXPECT_LT(found_of(bench::nystroem_choice(40, kRows)).distance,
            found_of(bench::nystroem_choice(1, kRows)).distance);
}

TEST_F(QualityOfBothSides, LinformerMeansAreSegmentMeans) {
  AllInputs<float> in = in_;
  const std::vector<float> ones(static_cast<std::size_t>(4 * kRows * 8), 1);
  in.q = fovea::View<const float>(ones.data(), in.q.shape());
  // All queries are equal: P = 1 has the mean of the values, and 80 rows in 3 segments all weights.
  const Result one(in);
  for (const Index projected : {1, 3, 100}) {
    const Choice choice = bench::linformer_choice(projected);
    choice.prepare(in, full_, pool_);
    choice.run(in, one, pool_);
    double total = 0;
    for (Index n = 0; n < kRows; ++n) total += in.v(0, 0, n, 2);
    if (projected == 1) {
      EXPECT_NEAR(one.out_view(0, 0, 7, 2), total / kRows, 1e-5);
    }
    EXPECT_TRUE(std::isfinite(one.out_view(0, 3, 79, 7))) << projected;
  }
}

/// The graph's edges carry what the largest weight of each key is, by plain loops.
TEST_F(QualityOfBothSides, TheBestGraphHasTheLargestWeightsOfEachKey) {
  for (Index h = 0; h < 4; ++h) {
    std::vector<double> largest(kRows);
    std::vector<double> weights;
    for (Index i = 0; i < kRows; ++i) {
      bench::full_weights(in_, h, i, false, weights);
      for (std::size_t j = 0; j < kRows; ++j) largest[j] = std::max(largest[j], weights[j]);
    }
    double sum = 0;
    for (const double w : largest) sum += w;
    const Choice choice = bench::fsat_choice(1, kRows);
    EXPECT_NEAR(found_of(choice, h).weight, sum / kRows, 1e-5) << h;
    EXPECT_GT(found_of(bench::fsat_choice(4, kRows), h).weight, sum / kRows);
  }
}

/// The logits by which blocks are sorted are the mean logits of pairs of blocks.
TEST_F(QualityOfBothSides, BlocksAreSortedByTheirMeanLogits) {
  const std::vector<float> logits = bench::detail::sorting_logits(in_, 16);
  ASSERT_EQ(logits.size(), 2u * 5 * 5);
  double sum = 0;  // of block 3 to block 1, key head 1, whose query heads are 2 and 3
  for (Index h = 2; h < 4; ++h) {
    for (Index i = 48; i < 64; ++i) {
      for (Index j = 16; j < 32; ++j) {
        for (Index c = 0; c < 8; ++c) sum += double{in_.q(0, h, i, c)} * double{in_.k(0, 1, j, c)};
      }
    }
  }
  EXPECT_NEAR(logits[25 + 3 * 5 + 1], sum / (2 * 16 * 16) / std::sqrt(8.0), 1e-5);
}

TEST_F(Quality, SmartBirdWithAllKeysEqualsFullAttention) {
  const Found found =
      found_of(bench::smart_bird_choice("", fovea::SamplingPolicy::top_k, kRows), 2);
  EXPECT_LT(found.distance, 1e-5);
  EXPECT_NEAR(found.weight, 1, 1e-5);
}

TEST_F(Quality, BestKeysHaveALargerShareThanSketchedKeys) {
  const Result best(in_);
  bench::attend_to_best(in_, {.keys_per_row = 10, .causal = true}, best, pool_);
  for (const auto policy : {fovea::SamplingPolicy::top_k, fovea::SamplingPolicy::random}) {
    EXPECT_GT(bench::found(best, full_, 0).weight,
              found_of(bench::smart_bird_choice("", policy, 10)).weight);
  }
}

TEST_F(Quality, ABlendWithFullAttentionSelectsIt) {
  // Where the near field is full attention and the far field is not, nothing of the far field.
  const Result far_field(in_);
  fovea::LinearAttention<fovea::EluPlusOne>({.causal = true})
      .forward(in_, far_field.out_view, pool_);
  const auto [near_logits, far_logits] = bench::detail::blend_logits(full_, far_field, full_);
  for (std::size_t h = 0; h < 4; ++h) {
    EXPECT_NEAR(1 / (1 + std::exp(-near_logits.numbers[h])), 0.999, 1e-4);
    EXPECT_NEAR(1 / (1 + std::exp(-far_logits.numbers[h])), 0.001, 1e-4);
  }
}

TEST_F(Quality, TheBlendIsAtLeastAsGoodAsTheNearField) {
  for (Index h = 0; h < 4; ++h) {
    const Found blended = found_of(bench::fmm_choice<fovea::EluPlusOne>(5), h);
    const Found near_field =
        found_of(bench::choice_of("", "", "", fovea::LocalAttention{{4, 0}}), h);
    EXPECT_LE(blended.distance, near_field.distance * 1.01);
  }
}

}  // namespace fovea_test::bench_measure_quality
