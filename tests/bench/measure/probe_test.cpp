// SPDX-License-Identifier: MIT
// The probe's results for given slices; their speed is not tested.
#include "bench/measure/probe.hpp"

#include <gtest/gtest.h>

namespace fovea_test::bench_measure_probe {

using bench::FmaBurst;
using bench::FmaSlice;
using bench::PeakSample;

/// A burst whose slices are all of 8 flops, in these seconds each.
FmaBurst burst_of(double seconds) {
  FmaBurst burst;
  burst.fill({8, seconds});
  return burst;
}

TEST(PeakSample, EqualSlicesHaveOneRate) {
  PeakSample peak;
  peak.add(burst_of(2));
  EXPECT_EQ(peak.best(), 4);
  EXPECT_EQ(peak.sustained(), 4);
}

TEST(PeakSample, ALostSliceLowersOnlyTheSustainedPeak) {
  FmaBurst burst = burst_of(1);
  burst.front().seconds = 11;
  PeakSample peak;
  peak.add(burst);
  EXPECT_EQ(peak.best(), 8);
  EXPECT_EQ(peak.sustained(), 4);  // 80 flops in 20 seconds
}

TEST(PeakSample, BurstsCountAlikeForTheBestAndByTheirTimeForTheSustainedPeak) {
  PeakSample peak;
  peak.add(burst_of(1));
  peak.add(burst_of(4));
  EXPECT_EQ(peak.best(), 5);         // the mean of 8 and 2
  EXPECT_EQ(peak.sustained(), 3.2);  // 160 flops in 50 seconds
}

template <class T>
void expect_work() {
  for (const FmaSlice& slice : bench::fma_burst<T>()) {
    EXPECT_GT(slice.flops, 0);
    EXPECT_GT(slice.seconds, 0);
  }
}

TEST(FmaBurst, EverySliceHasWork) {
  expect_work<float>();
  expect_work<double>();
}

}  // namespace fovea_test::bench_measure_probe
