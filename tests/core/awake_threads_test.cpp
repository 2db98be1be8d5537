// SPDX-License-Identifier: MIT
/// \file
/// Threads of a pool that are kept awake between calls. (That they make calls as others do is in
/// executor_test.cpp.)
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "fovea/core/arena.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/executors.hpp"

namespace fovea_test::core_awake_threads {

using fovea::Index;
using fovea::ThreadPool;
using fovea::detail::AwakeThreads;
using fovea::detail::PoolJob;
using fovea::detail::ReadAhead;

/// A waiting thread runs a job that no other thread runs.
TEST(AwakeThreads, RunOfferedWork) {
  AwakeThreads threads;
  threads.begin();
  const auto nothing = [](Index) {};
  const auto empty = std::make_shared<PoolJob>(0, nothing);
  std::optional<std::thread> watcher;
  for (int round = 0; round < 20; ++round) {
    std::atomic<Index> sum{0};
    const auto add = [&](Index i) { sum += i; };
    const auto job = std::make_shared<PoolJob>(101, add);
    // It may have lost patience since the last round.
    while (threads.offer(round % 2 == 0 ? empty : job) == 0) {
      if (watcher) watcher->join();
      watcher.emplace([&] { threads.watch(); });
      std::this_thread::yield();
    }
    if (round % 2 == 0) continue;
    job->wait();
    EXPECT_EQ(sum, 100 * 101 / 2);
  }
  threads.end();
  watcher->join();
  EXPECT_EQ(threads.offer(empty), 0);
}

TEST(AwakeThreads, MayOutliveTheirPool) {
  auto pool = std::make_unique<ThreadPool>(3);
  const auto awake = pool->stay_awake();
  std::atomic<int> calls{0};
  pool->parallel_for(9, [&](Index) { ++calls; });
  EXPECT_EQ(calls, 9);
  pool.reset();
}

TEST(AwakeThreads, RunSmallWork) {
  const ThreadPool pool(2);
  const auto workers = [&] {
    return fovea::for_work(fovea::ExecutorRef(pool), [] { return 100.0; }).concurrency();
  };
  EXPECT_EQ(workers(), 1);
  {
    const auto awake = pool.stay_awake();
    const auto again = fovea::stay_awake(pool);
    EXPECT_EQ(workers(), 2);
  }
  EXPECT_EQ(workers(), 1);
}

TEST(AwakeThreads, AreFoundBelowAnArena) {
  const ThreadPool pool(2);
  fovea::Arena arena(1 << 16);
  const auto executor = arena.on(pool);
  EXPECT_FALSE(fovea::takes_small_work(executor));
  const auto awake = fovea::stay_awake(executor);
  EXPECT_TRUE(pool.takes_small_work() && fovea::takes_small_work(executor));
  // The awake threads of an executor that is always awake, and of one that never is.
  EXPECT_TRUE(fovea::takes_small_work(arena.on(Backwards())));
  EXPECT_FALSE(fovea::takes_small_work(arena.on(fovea::Serial())));
}

/// The number of pieces that are prefetched until none are left.
Index pieces(ReadAhead& ahead) {
  Index count = 0;
  while (ahead.advance()) ++count;
  return count;
}

TEST(ReadAhead, PrefetchesTheMatrixThatFollowedTheLastTime) {
  constexpr Index piece = ReadAhead::kPiece, most = ReadAhead::kMostBytes;
  const std::vector<char> first(1), second(1), third(1);
  ReadAhead ahead;
  EXPECT_EQ(pieces(ahead), 0);
  for (const auto& [matrix, bytes] : {std::pair(&first, piece), std::pair(&second, 2 * piece + 1),
                                      std::pair(&third, most + piece)}) {
    ahead.note(matrix->data(), bytes);
    EXPECT_EQ(pieces(ahead), 0);  // what follows is not known
  }
  ahead.note(first.data(), piece);
  EXPECT_EQ(pieces(ahead), 3);
  ahead.note(second.data(), 2 * piece + 1);
  EXPECT_EQ(pieces(ahead), most / piece);
  ahead.note(third.data(), most + piece);
  EXPECT_EQ(pieces(ahead), 1);
  ahead.note(first.data(), piece);
  ahead.note(third.data(), piece);  // replaces the second one
  ahead.note(first.data(), piece);
  EXPECT_EQ(pieces(ahead), 1);
}

TEST(ReadAhead, IsFoundBelowAnArenaAndAReference) {
  const RecordsReads recorder;
  fovea::Arena arena(1 << 16);
  const auto executor = arena.on(recorder);
  fovea::LeasedExecutor leased(executor);
  const int matrix = 0;
  fovea::ExecutorRef(leased).will_read(&matrix, 7);
  EXPECT_EQ(recorder.reads, (std::vector<std::pair<const void*, Index>>{{&matrix, 7}}));
  fovea::ExecutorRef(fovea::Serial()).will_read(&matrix, 7);  // has no use for it
}

}  // namespace fovea_test::core_awake_threads
