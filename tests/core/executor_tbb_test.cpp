// SPDX-License-Identifier: MIT
// fovea_test(ALONE NEEDS TBB)
/// \file
/// Tests of core/executor_tbb.hpp.
#include "fovea/core/executor_tbb.hpp"

#include <gtest/gtest.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>

#include <atomic>
#include <memory>

#include "core/executor_suite.hpp"
#include "fovea/core/arena.hpp"

namespace fovea_test::core_executor_tbb {

using fovea::TbbExecutor;

static_assert(fovea::Executor<TbbExecutor> && fovea::Executor<const TbbExecutor>);

struct TbbHolder {
  TbbExecutor executor;
};
struct TbbOnArenaHolder {
  fovea::Arena arena{64};
  fovea::ArenaExecutor<TbbExecutor> executor = arena.on(TbbExecutor{});
};
using TbbHolders = ::testing::Types<TbbHolder, TbbOnArenaHolder>;
INSTANTIATE_TYPED_TEST_SUITE_P(Tbb, ExecutorSuite, TbbHolders);

/// The executor, with every call made in an arena of three threads whatever the machine has.
struct ArenaHolder {
  struct ArenaExecutor {
    static int concurrency() { return 3; }
    template <class F>
    void parallel_for(Index n, const F& f) {
      arena.execute([&] { TbbExecutor::parallel_for(n, f); });
    }
    oneapi::tbb::task_arena arena{3};
  };
  oneapi::tbb::global_control allowed{oneapi::tbb::global_control::max_allowed_parallelism, 3};
  ArenaExecutor executor;
};
INSTANTIATE_TYPED_TEST_SUITE_P(TbbArena, ExecutorSuite, ArenaHolder);

TEST(TbbExecutor, CountsTheArena) {
  oneapi::tbb::task_arena arena(2);
  arena.execute([] { EXPECT_EQ(TbbExecutor::concurrency(), 2); });
}

TEST(TbbExecutor, RunsNoOuterTaskWhileItWaits) {
  static thread_local bool waiting = false;
  const oneapi::tbb::global_control allowed(oneapi::tbb::global_control::max_allowed_parallelism,
                                            2);
  oneapi::tbb::task_arena arena(2);
  const auto intrusions = std::make_shared<std::atomic<int>>(0);
  arena.execute([&] {
    waiting = true;
    std::atomic<bool> helped{false};
    TbbExecutor::parallel_for(2, [&](Index) {
      if (waiting) {  // the caller: gives a helper time to take the other call, then waits for it
        for (int i = 0; i < 30 && !helped; ++i) linger();
        return;
      }
      helped = true;
      arena.enqueue([intrusions] { *intrusions += waiting ? 1 : 0; });
      for (int i = 0; i < 10; ++i) linger();
    });
    waiting = false;
  });
  EXPECT_EQ(*intrusions, 0);
}

TEST(TbbExecutor, ACancelledGroupAroundItCancelsNoCall) {
  oneapi::tbb::task_group_context context;
  std::atomic<int> calls{0};
  oneapi::tbb::parallel_for(
      0, 1,
      [&](int) {
        context.cancel_group_execution();
        TbbExecutor::parallel_for(100, [&](Index) { ++calls; });
      },
      context);
  EXPECT_EQ(calls, 100);
}

}  // namespace fovea_test::core_executor_tbb
