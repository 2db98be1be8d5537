// SPDX-License-Identifier: MIT
#include "fovea/layers/schedule.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "support/refusal.hpp"

namespace fovea_test::layers_schedule {

using fovea::RateDecay;
using fovea::RateSchedule;

std::vector<double> rates(const RateSchedule& schedule, fovea::Index count) {
  std::vector<double> all;
  for (fovea::Index t = 0; t < count; ++t) all.push_back(schedule.rate(t));
  return all;
}

TEST(RateSchedule, WarmsUpAndDecays) {
  RateSchedule schedule{.peak = 8, .warmup_steps = 4, .total_steps = 8, .last = 4};
  const std::vector<double> cosine = rates(schedule, 10);
  const double root = std::sqrt(2.0);
  const std::vector<double> expected = {2, 4, 6, 8, 8, 6 + root, 6, 6 - root, 4, 4};
  for (std::size_t t = 0; t < expected.size(); ++t) EXPECT_NEAR(cosine[t], expected[t], 1e-14);
  schedule.decay = RateDecay::linear;
  EXPECT_EQ(rates(schedule, 10), (std::vector<double>{2, 4, 6, 8, 8, 7, 6, 5, 4, 4}));
  schedule.decay = RateDecay::constant;
  EXPECT_EQ(rates(schedule, 6), (std::vector<double>{2, 4, 6, 8, 8, 8}));
}

TEST(RateSchedule, MayHaveNoWarmUpOrOnlyWarmUp) {
  EXPECT_EQ(rates({.peak = 2, .total_steps = 2, .decay = RateDecay::linear}, 3),
            (std::vector<double>{2, 1, 0}));
  EXPECT_EQ(rates({.peak = 2, .warmup_steps = 2, .total_steps = 2}, 3),
            (std::vector<double>{1, 2, 0}));
}

TEST(RateSchedule, Refusals) {
  const auto message = [](const RateSchedule& schedule, fovea::Index t = 0) {
    return refusal([&] { (void)schedule.rate(t); });
  };
  EXPECT_EQ(message({}, -1), "RateSchedule: t is -1; expected at least 0");
  EXPECT_EQ(message({.warmup_steps = 5, .total_steps = 4}),
            "RateSchedule: total_steps is 4; expected at least 5");
  EXPECT_EQ(message({.warmup_steps = -1}), "RateSchedule: warmup_steps is -1; expected at least 0");
  EXPECT_EQ(message({.peak = -1}),
            "RateSchedule: peak is -1; expected a finite number of at least 0");
  EXPECT_NE(message({.last = std::nan("")}).find("last is nan"), std::string::npos);
}

}  // namespace fovea_test::layers_schedule
