// SPDX-License-Identifier: MIT
/// \file
/// What every Executor must do. A test file instantiates the suite for a holder: a default
/// constructible type with a member `executor`.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/calls.hpp"
#include "fovea/core/executor_ref.hpp"
#include "support/tally.hpp"

namespace fovea_test {

template <class Holder>
class ExecutorSuite : public ::testing::Test {
 protected:
  auto& executor() { return holder_.executor; }

 private:
  Holder holder_;
};
TYPED_TEST_SUITE_P(ExecutorSuite);

TYPED_TEST_P(ExecutorSuite, ConcurrencyIsPositive) { EXPECT_GE(this->executor().concurrency(), 1); }

TYPED_TEST_P(ExecutorSuite, CallsEachIndexOnce) {
  for (const Index n : {0, 1, 2, 3, 4, 5, 17, 1000}) {
    Tally calls(n);
    this->executor().parallel_for(n, [&](Index i) { calls.raise(i); });
    EXPECT_TRUE(calls.all(1)) << n;
  }
}

TYPED_TEST_P(ExecutorSuite, NegativeCountCallsNothing) {
  bool called = false;
  this->executor().parallel_for(-3, [&](Index) { called = true; });
  fovea::for_each_task(this->executor(), -3, [&](Index, Index) { called = true; });
  EXPECT_FALSE(called);
}

TYPED_TEST_P(ExecutorSuite, WritesAreSeenByTheCaller) {
  std::vector<Index> squares(200);
  this->executor().parallel_for(200, [&](Index i) { squares[as_size(i)] = i * i; });
  for (Index i = 0; i < 200; ++i) EXPECT_EQ(squares[as_size(i)], i * i);
}

TYPED_TEST_P(ExecutorSuite, WorkersOwnTheirSlots) {
  auto& executor = this->executor();
  for (const Index tasks : {0, 1, 2, 3, 5, 64, 1000}) {
    const Index workers = fovea::worker_count(executor, tasks);
    EXPECT_EQ(workers, std::min<Index>(tasks, executor.concurrency()));
    Tally runs(tasks);
    std::vector<std::atomic<bool>> busy(as_size(workers));
    std::vector<Index> scratch(as_size(workers));  // not atomic: a race here is a sanitizer's find
    std::atomic<int> clashes{0};
    fovea::for_each_task(executor, tasks, [&](Index task, Index worker) {
      if (worker < 0 || worker >= workers || busy[as_size(worker)].exchange(true)) {
        ++clashes;
        return;
      }
      ++scratch[as_size(worker)];
      runs.raise(task);
      if (task < 10) linger();
      busy[as_size(worker)] = false;
    });
    EXPECT_EQ(clashes, 0);
    EXPECT_TRUE(runs.all(1)) << tasks;
    Index total = 0;
    for (const Index count : scratch) total += count;
    EXPECT_EQ(total, tasks);
  }
}

TYPED_TEST_P(ExecutorSuite, NestedCallsRunInTheirThread) {
  auto& executor = this->executor();
  constexpr Index outer = 8;
  constexpr Index inner = 16;
  std::atomic<int> strays{0};
  std::array<std::vector<Index>, outer> orders;
  executor.parallel_for(outer, [&](Index i) {
    const auto self = std::this_thread::get_id();
    executor.parallel_for(inner, [&](Index j) {
      if (std::this_thread::get_id() != self) {
        ++strays;
        return;
      }
      orders[as_size(i)].push_back(j);
      if (j < 4) linger();
    });
    fovea::for_each_task(executor, inner, [&](Index task, Index) {
      if (std::this_thread::get_id() != self) ++strays;
      if (task < 4) linger();
    });
  });
  EXPECT_EQ(strays, 0);
  for (const std::vector<Index>& order : orders) {
    EXPECT_EQ(order.size(), as_size(inner));
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  }
}

TYPED_TEST_P(ExecutorSuite, CallersShareIt) {
  constexpr Index callers = 4;
  constexpr Index rounds = 20;
  constexpr Index n = 50;
  auto& executor = this->executor();
  std::vector<std::unique_ptr<Tally>> tallies;
  for (Index c = 0; c < callers; ++c) tallies.push_back(std::make_unique<Tally>(n));
  std::vector<std::thread> threads;
  for (Index c = 0; c < callers; ++c) {
    threads.emplace_back([&, c] {
      for (Index round = 0; round < rounds; ++round) {
        executor.parallel_for(n, [&](Index i) { tallies[as_size(c)]->raise(i); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& tally : tallies) EXPECT_TRUE(tally->all(rounds));
}

TYPED_TEST_P(ExecutorSuite, RethrowsTheExceptionOfTheLowestIndex) {
  auto& executor = this->executor();
  for (const Index lowest : {0, 1, 7, 38, 39}) {
    for (int round = 0; round < 5; ++round) {
      std::atomic<int> running{0};
      Tally calls(lowest);
      const std::string error = error_of([&] {
        executor.parallel_for(40, [&](Index i) {
          ++running;
          if (i < lowest) calls.raise(i);
          --running;
          if (i >= lowest) fail_at(i);
        });
      });
      EXPECT_EQ(running, 0);
      EXPECT_TRUE(calls.all(1));
      EXPECT_EQ(error, "failed at " + std::to_string(lowest));
    }
  }
}

TYPED_TEST_P(ExecutorSuite, RethrowsTheExceptionOfTheLowestTask) {
  auto& executor = this->executor();
  for (const Index lowest : {0, 1, 7, 38, 39}) {
    for (int round = 0; round < 5; ++round) {
      Tally runs(lowest);
      const std::string error = error_of([&] {
        fovea::for_each_task(executor, 40, [&](Index task, Index) {
          if (task >= lowest) fail_at(task);
          runs.raise(task);
        });
      });
      EXPECT_TRUE(runs.all(1));
      EXPECT_EQ(error, "failed at " + std::to_string(lowest));
    }
  }
}

TYPED_TEST_P(ExecutorSuite, RethrowsAnyType) {
  EXPECT_THROW(this->executor().parallel_for(10, [](Index) { throw 7; }), int);
  EXPECT_THROW(fovea::for_each_task(this->executor(), 10, [](Index, Index) { throw 7; }), int);
}

TYPED_TEST_P(ExecutorSuite, NestedErrorReachesTheCaller) {
  auto& executor = this->executor();
  const std::string error = error_of([&] {
    executor.parallel_for(4, [&](Index i) {
      executor.parallel_for(4, [&](Index j) {
        if (i >= 1 && j >= 2) fail_at(10 * i + j);
      });
    });
  });
  EXPECT_EQ(error, "failed at 12");
}

TYPED_TEST_P(ExecutorSuite, WorksAfterAnError) {
  auto& executor = this->executor();
  EXPECT_NE(error_of([&] { executor.parallel_for(9, fail_at); }), "no error");
  EXPECT_FALSE(fovea::detail::inside_call());
  Tally calls(100);
  executor.parallel_for(100, [&](Index i) { calls.raise(i); });
  EXPECT_TRUE(calls.all(1));
}

TYPED_TEST_P(ExecutorSuite, ManyShortCalls) {
  for (int round = 0; round < 1000; ++round) {
    Index sums[3] = {};  // gone when a late helper comes
    this->executor().parallel_for(3, [&](Index i) { sums[i] = i + round; });
    ASSERT_EQ(sums[0] + sums[1] + sums[2], 3 + 3 * round);
  }
}

/// The tasks run as the caller computes, and afterwards the threads are as they were.
TYPED_TEST_P(ExecutorSuite, TasksUseTheCallersFloatEnvironment) {
  auto& executor = this->executor();
  const int usual = std::fegetround();
  executor.parallel_for(40, [](Index) { linger(); });  // makes threads, which inherit what is usual
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, usual}) {
    for (const bool throws : {false, true}) {
      std::atomic<int> others{0};
      std::fesetround(mode);
      const std::string error = error_of([&] {
        fovea::for_each_task(executor, 40, [&](Index task, Index) {
          if (std::fegetround() != mode) ++others;
          linger();
          if (throws) fail_at(task);
        });
      });
      EXPECT_EQ(std::fegetround(), mode);
      std::fesetround(usual);
      EXPECT_EQ(error, throws ? "failed at 0" : "no error");
      executor.parallel_for(40, [&](Index) {
        if (std::fegetround() != usual) ++others;
        linger();
      });
      EXPECT_EQ(others, 0);
    }
  }
}

REGISTER_TYPED_TEST_SUITE_P(ExecutorSuite, ConcurrencyIsPositive, CallsEachIndexOnce,
                            NegativeCountCallsNothing, WritesAreSeenByTheCaller,
                            WorkersOwnTheirSlots, NestedCallsRunInTheirThread, CallersShareIt,
                            RethrowsTheExceptionOfTheLowestIndex,
                            RethrowsTheExceptionOfTheLowestTask, RethrowsAnyType,
                            NestedErrorReachesTheCaller, WorksAfterAnError, ManyShortCalls,
                            TasksUseTheCallersFloatEnvironment);

}  // namespace fovea_test
