// SPDX-License-Identifier: MIT
// fovea_test(ALONE NEEDS OpenMP)
/// \file
/// Tests of core/executor_openmp.hpp.
#include "fovea/core/executor_openmp.hpp"

#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <thread>

#include "core/executor_suite.hpp"
#include "fovea/core/arena.hpp"

namespace fovea_test::core_executor_openmp {

using fovea::OpenMpExecutor;

static_assert(fovea::Executor<OpenMpExecutor> && fovea::Executor<const OpenMpExecutor>);

template <int concurrency>
struct OpenMpHolder {
  OpenMpExecutor executor{concurrency};
};
struct ArenaHolder {
  fovea::Arena arena{64};
  fovea::ArenaExecutor<OpenMpExecutor> executor = arena.on(OpenMpExecutor(3));
};
using Holders = ::testing::Types<OpenMpHolder<1>, OpenMpHolder<2>, OpenMpHolder<4>, ArenaHolder>;
INSTANTIATE_TYPED_TEST_SUITE_P(OpenMp, ExecutorSuite, Holders);

TEST(OpenMpExecutor, UsesTheThreadCountOfOpenMp) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(3);
  EXPECT_EQ(OpenMpExecutor().concurrency(), 3);
  omp_set_num_threads(before);
  EXPECT_EQ(OpenMpExecutor(0).concurrency(), 1);
}

TEST(OpenMpExecutor, HasAtMostTheStatedThreads) {
  const OpenMpExecutor executor(2);
  std::atomic<int> most{0};
  executor.parallel_for(16, [&](Index) {
    if (omp_get_num_threads() > most) most = omp_get_num_threads();
    linger();
  });
  EXPECT_LE(most, 2);
}

TEST(OpenMpExecutor, RunsInlineInAParallelRegion) {
  const OpenMpExecutor executor(4);
  std::atomic<int> strays{0};
#pragma omp parallel num_threads(2)
  {
    const auto self = std::this_thread::get_id();
    executor.parallel_for(8, [&](Index) {
      if (std::this_thread::get_id() != self) ++strays;
      linger();
    });
  }
  EXPECT_EQ(strays, 0);
}

}  // namespace fovea_test::core_executor_openmp
