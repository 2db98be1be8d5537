// SPDX-License-Identifier: MIT
// What the operators of fovea_quality make of random heads: where the answer is known, and what
// holds for any.
#include "bench/measure/quality.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "bench/io/compare_input.hpp"

namespace {

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
  Quality() : tensors_(heads()), in_(tensors_.first(kRows)), full_(in_), pool_(1) {
    fovea::FullAttention{{.causal = true}}.forward(in_, full_.out_view, {full_.lse_view}, pool_);
  }

  Found found_of(const Choice& choice, Index head = 0) {
    if (choice.prepare) choice.prepare(in_, full_, pool_);
    const Result one(in_);
    choice.run(in_, one, pool_);
    return bench::found(one, full_, head);
  }

  bench::HeadTensors tensors_;
  AllInputs<float> in_;
  Result full_;
  ThreadPool pool_;
};

TEST_F(Quality, FullAttentionIsItself) {
  const Found found = found_of(bench::quality_choices()[0]);
  EXPECT_EQ(found.distance, 0);
  EXPECT_NEAR(found.cosine, 1, 1e-9);
  EXPECT_EQ(found.weight, 1);
}

TEST_F(Quality, EveryChoiceRunsAndCarriesAShareOfTheWeight) {
  for (const Choice& choice : bench::quality_choices()) {
    const Found found = found_of(choice, 3);
    const std::string name = choice.series + ", " + choice.parameter;
    EXPECT_TRUE(std::isfinite(found.distance)) << name;
    EXPECT_LE(std::abs(found.cosine), 1 + 1e-9) << name;
    EXPECT_GE(choice.workspace_bytes(fovea::shape_of(in_)), 0) << name;
    if (!choice.has_pairs) continue;
    EXPECT_GT(found.weight, 0) << name;
    EXPECT_LE(found.weight, 1 + 1e-5) << name;
    // As much of the values as the weight that is left out can carry is missing.
    if (found.weight > 1 - 1e-5) {
      EXPECT_LT(found.distance, 1e-3) << name;
    }
  }
}

TEST_F(Quality, WiderWindowsCarryMore) {
  std::map<std::string, double> last;
  for (const Choice& choice : bench::quality_choices()) {
    if (choice.system != "local" && choice.system != "longformer") continue;
    const double weight = found_of(choice).weight;
    EXPECT_GE(weight, last[choice.series]) << choice.parameter;
    last[choice.series] = weight;
  }
  EXPECT_EQ(last["window"], 1);  // 512 keys are all of them
}

TEST_F(Quality, SmartBirdWithAllKeysIsFullAttention) {
  const Found found =
      found_of(bench::smart_bird_choice("", fovea::SamplingPolicy::top_k, kRows), 2);
  EXPECT_LT(found.distance, 1e-5);
  EXPECT_NEAR(found.weight, 1, 1e-5);
}

TEST_F(Quality, OwnBestKeysCarryMoreThanThoseOfASketch) {
  const Result best(in_);
  bench::attend_to_best(in_, {.keys_per_row = 10, .causal = true}, best, pool_);
  for (const auto policy : {fovea::SamplingPolicy::top_k, fovea::SamplingPolicy::random}) {
    EXPECT_GT(bench::found(best, full_, 0).weight,
              found_of(bench::smart_bird_choice("", policy, 10)).weight);
  }
}

TEST_F(Quality, ABlendOfFullAttentionTakesIt) {
  // Where the near field is full attention and the far field is not, nothing of the far field.
  const Result far(in_);
  fovea::LinearAttention<fovea::EluPlusOne>({.causal = true}).forward(in_, far.out_view, pool_);
  const bench::detail::BlendLogits blend(full_, far, full_);
  for (std::size_t h = 0; h < 4; ++h) {
    EXPECT_NEAR(1 / (1 + std::exp(-blend.near_logits[h])), 0.999, 1e-4);
    EXPECT_NEAR(1 / (1 + std::exp(-blend.far_logits[h])), 0.001, 1e-4);
  }
}

TEST_F(Quality, TheBlendIsNoFartherThanTheNearFieldAlone) {
  for (Index h = 0; h < 4; ++h) {
    const Found blended = found_of(bench::fmm_choice<fovea::EluPlusOne>(5), h);
    const Found near =
        found_of(bench::pattern_choice("", "", "", fovea::LocalAttention{{4, 0}}), h);
    EXPECT_LE(blended.distance, near.distance * 1.01);
  }
}

}  // namespace
