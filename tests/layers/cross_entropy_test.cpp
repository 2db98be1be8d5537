// SPDX-License-Identifier: MIT
#include "fovea/layers/cross_entropy.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

#include "layers/gradient_check.hpp"

namespace fovea_test::layers_cross_entropy {

using fovea::softmax_cross_entropy;

const std::vector<Index> kTargets = {2, 0, fovea::kNoTarget, 1, 1, 0};

TEST(CrossEntropy, IsTheMeanOfMinusLogProbability) {
  const Activations logits = drawn({2, 1, 3, 3}, 1, 2);
  double expected = 0;
  for (Index i = 0; i < 6; ++i) {
    if (kTargets[as_size(i)] < 0) continue;
    double sum = 0;
    for (Index c = 0; c < 3; ++c) sum += std::exp(logits(i / 3, 0, i % 3, c));
    expected -= std::log(std::exp(logits(i / 3, 0, i % 3, kTargets[as_size(i)])) / sum) / 5;
  }
  EXPECT_NEAR(softmax_cross_entropy<double>(logits.view(), kTargets, {}), expected, 1e-14);
  const Activations far({1, 1, 1, 2});
  far.fill([](Index, Index, Index, Index c) { return c == 0 ? 1e6 : -1e6; });
  EXPECT_EQ(softmax_cross_entropy<double>(far.view(), std::vector<Index>{1}, {}), 2e6);
}

TEST(CrossEntropy, Gradient) {
  const Activations logits = drawn({2, 1, 3, 3}, 1, 2);
  const Activations d_logits(logits.shape());
  fovea::ThreadPool pool(3);
  const AnyExecutor three = AnyExecutor::of(pool);
  softmax_cross_entropy<double>(logits.view(), kTargets, d_logits.view(), three);
  for_each_index(logits.shape(), [&](Index b, Index, Index n, Index c) {
    const double before = logits(b, 0, n, c);
    const auto loss_at = [&](double at) {
      logits(b, 0, n, c) = at;
      return softmax_cross_entropy<double>(logits.view(), kTargets, {});
    };
    const double difference = (loss_at(before + 1e-5) - loss_at(before - 1e-5)) / 2e-5;
    logits(b, 0, n, c) = before;
    EXPECT_NEAR(d_logits(b, 0, n, c), difference, 1e-9);
  });
  EXPECT_EQ(d_logits(0, 0, 2, 1), 0);
}

TEST(CrossEntropy, NothingToLearn) {
  const Activations logits = drawn({1, 1, 2, 3}, 1);
  const Activations d_logits(logits.shape());
  const std::vector<Index> none(2, fovea::kNoTarget);
  EXPECT_EQ(softmax_cross_entropy<double>(logits.view(), none, d_logits.view()), 0);
  for (const double d : d_logits.values()) EXPECT_EQ(d, 0);
}

TEST(CrossEntropy, SupportsTargetsOf32And64Bits) {
  const Activations logits = drawn({2, 1, 3, 3}, 1, 2);
  const std::vector<std::int32_t> narrow(kTargets.begin(), kTargets.end());
  const std::vector<long long> wide(kTargets.begin(), kTargets.end());
  fovea::ThreadPool pool(3);
  const AnyExecutor three = AnyExecutor::of(pool);  // blocks begin at any row
  const auto results = [&](const auto& targets) {
    const Activations d_logits(logits.shape());
    std::vector<double> all = {
        softmax_cross_entropy<double>(logits.view(), targets, d_logits.view(), three)};
    std::ranges::copy(d_logits.values(), std::back_inserter(all));
    return all;
  };
  EXPECT_TRUE(same_bits(results(narrow), results(kTargets)));
  EXPECT_TRUE(same_bits(results(wide), results(kTargets)));
}

/// Of any width, targets that are no class are refused before anything is written.
TEST(CrossEntropy, WritesNothingForInvalidTargets) {
  const Activations logits = drawn({1, 1, 2, 3}, 1), d_logits(logits.shape());
  const auto expect_refusals = [&](auto bits) {
    using Target = decltype(bits);
    for (const Target target : {Target{3}, Target{-2}, (std::numeric_limits<Target>::min)()}) {
      const std::vector<Target> targets = {0, target};
      EXPECT_EQ(
          refusal([&] { softmax_cross_entropy<double>(logits.view(), targets, d_logits.view()); }),
          "softmax_cross_entropy: target 1 is " + std::to_string(target) +
              "; expected 0 to 2, the classes, or kNoTarget");
      for (const double d : d_logits.values()) EXPECT_TRUE(std::isnan(d));
    }
  };
  expect_refusals(std::int32_t{});
  expect_refusals(std::int64_t{});
}

TEST(CrossEntropy, Refusals) {
  const Activations logits = drawn({1, 1, 2, 3}, 1);
  const auto with = [&](const std::vector<Index>& targets, const Shape& shape) {
    const Activations d_logits(shape);
    return refusal([&] { softmax_cross_entropy<double>(logits.view(), targets, d_logits.view()); });
  };
  EXPECT_EQ(with({0, 3}, {1, 1, 2, 3}),
            "softmax_cross_entropy: target 1 is 3; expected 0 to 2, the classes, or kNoTarget");
  EXPECT_EQ(with({0}, {1, 1, 2, 3}),
            "softmax_cross_entropy: the number of targets is 1; expected 2, the batch times the "
            "rows of logits");
  EXPECT_EQ(with({0, 1}, {1, 1, 2, 4}),
            "softmax_cross_entropy: d_logits has width 4; expected 3, the width of the layer");
}

}  // namespace fovea_test::layers_cross_entropy
