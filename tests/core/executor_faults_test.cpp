// SPDX-License-Identifier: MIT
// fovea_test(ALONE HEAP LINK ${CMAKE_DL_LIBS})
/// \file
/// Misbehaving executors, and pools without resources: threads that the system refuses, failing
/// allocations, pools after a fork, Eigen pools that are cancelled.
#define EIGEN_USE_THREADS
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "core/calls.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/failing_allocations.hpp"
#include "support/misbehaving_executors.hpp"
#include "support/tally.hpp"

#if defined(__linux__)
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>

#include "support/child_process.hpp"
#include "support/sanitizers.hpp"
#endif

namespace fovea_test {
namespace {

using fovea::EigenExecutor;
using fovea::ThreadPool;

/// Runs tasks on an executor, each of which occupies its worker for a while: every task runs once,
/// and no worker has two tasks at a time.
template <class E>
void expect_every_task_once(E& executor, Index tasks) {
  auto&& threads = fovea::for_work(executor, [] { return 1e9; });
  const Index workers = fovea::worker_count(threads, tasks);
  Tally runs(tasks);
  std::vector<std::atomic<int>> busy(as_size(workers));
  std::atomic<int> shared{0};
  fovea::for_each_task(threads, tasks, [&](Index task, Index worker) {
    ASSERT_GE(worker, 0);
    ASSERT_LT(worker, workers);
    if (busy[as_size(worker)]++ != 0) ++shared;
    runs.raise(task);
    std::this_thread::yield();
    --busy[as_size(worker)];
  });
  EXPECT_TRUE(runs.all(1));
  EXPECT_EQ(shared, 0);
}

TEST(Misbehaving, EveryTaskIsRunOnce) {
  int executors = 0;
  for_each_misbehaving([&](const std::string& name, auto& executor) {
    SCOPED_TRACE(name);
    for (const Index tasks : {0, 1, 2, 3, 50}) expect_every_task_once(executor, tasks);
    ++executors;
  });
  EXPECT_GE(executors, 12);
}

TEST(Misbehaving, ErrorsOfTasksReachTheCaller) {
  for_each_misbehaving([&](const std::string& name, auto& executor) {
    SCOPED_TRACE(name);
    EXPECT_EQ(error_of([&] {
                fovea::for_each_task(executor, 50, [](Index task, Index) {
                  if (task >= 20) fail_at(task);
                });
              }),
              "failed at 20");
  });
}

/// An executor's exception reaches the caller; no task is run again before that.
TEST(Misbehaving, ErrorsOfExecutorsReachTheCaller) {
  for (const Index calls : {0, 1, 2, 4}) {
    ThrowsAfter executor{calls};
    std::atomic<Index> runs{0};
    EXPECT_EQ(error_of([&] { fovea::for_each_task(executor, 9, [&](Index, Index) { ++runs; }); }),
              "the user's executor");
    EXPECT_EQ(runs, calls == 0 ? 0 : 9);
  }
}

/// Scratch memory for that many workers is sufficient even if the executor's concurrency then
/// changes.
TEST(Misbehaving, ConcurrencyIsReadOnce) {
  ChangesConcurrency executor;
  auto&& threads = fovea::for_work(executor, [] { return 1e9; });
  const Index first = fovea::worker_count(threads, 100);
  for (int again = 0; again < 20; ++again) EXPECT_EQ(fovea::worker_count(threads, 100), first);
  for (const std::int64_t claimed : {std::int64_t{0}, std::int64_t{-5}, INT64_MIN}) {
    ClaimsConcurrency none{claimed};
    EXPECT_EQ(fovea::for_work(none, [] { return 1e9; }).concurrency(), 1) << claimed;
  }
}

#if defined(__linux__)

/// How many threads may be created before one is refused, and how many are refused then.
std::atomic<int> threads_before{-1};
std::atomic<int> threads_refused{0};
std::atomic<int> threads_made{0};

/// Whether the thread that is about to be created shall be refused.
bool refuses_thread() {
  if (threads_before < 0) return false;
  if (threads_before > 0) {
    --threads_before;
    return false;
  }
  return threads_refused > 0 && threads_refused-- > 0;
}

}  // namespace
}  // namespace fovea_test

/// Called by std::thread: refuses threads, or calls the system.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) noexcept {
  if (fovea_test::refuses_thread()) return EAGAIN;
  ++fovea_test::threads_made;
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, run, argument);
}

namespace fovea_test {
namespace {

/// The threads of this process.
int threads_alive() {
  DIR* const folder = opendir("/proc/self/task");
  if (folder == nullptr) return -1;
  int count = -2;  // "." and ".."
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

/// Threads that were joined may need a moment until they are gone from /proc.
testing::AssertionResult as_many_threads_as(int before) {
  for (int look = 0; look < 2000; ++look) {
    if (threads_alive() <= before) return testing::AssertionSuccess();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return testing::AssertionFailure() << threads_alive() << " threads, before " << before;
}

/// Refuses threads while it lives: the first after `before` others, or all from there on.
class RefusedThreads {
 public:
  RefusedThreads(int before, bool forever) {
    threads_refused = forever ? 1'000'000 : 1;
    threads_before = before;
  }
  RefusedThreads(const RefusedThreads&) = delete;
  RefusedThreads& operator=(const RefusedThreads&) = delete;
  ~RefusedThreads() { threads_before = -1; }
};

TEST(RefusedThreads, APoolWorksWithFewerThreads) {
  constexpr int most = 8;
  const int before = threads_alive();
  for (const bool forever : {false, true}) {
    for (int n = 0; n <= most; ++n) {
      const int made = threads_made;
      {
        const RefusedThreads refused(n, forever);
        const ThreadPool pool(most);
        EXPECT_EQ(pool.concurrency(), std::min(n + 1, most));
        EXPECT_EQ(threads_made - made, std::min(n, most - 1));
        expect_every_task_once(pool, 60);
      }
      EXPECT_TRUE(as_many_threads_as(before)) << n;
    }
  }
  const ThreadPool pool(3);
  EXPECT_EQ(pool.concurrency(), 3);
}

/// Starts threads for each parallel_for.
struct StartsThreads {
  static int concurrency() { return 5; }
  template <class F>
  static void parallel_for(Index n, const F& f) {
    in_threads(n, f);
  }
};

/// An executor that is refused threads in the middle.
TEST(RefusedThreads, TheCallerRunsTheTasksOfMissingThreads) {
  StartsThreads executor;
  for (int n = 0; n < 5; ++n) {
    const RefusedThreads refused(n, true);
    expect_every_task_once(executor, 60);
  }
}

/// A pool whose allocation fails throws without leaks, or has fewer threads; if memory for a call
/// is missing, the calls are still made.
TEST(RefusedMemory, APoolThrowsOrWorks) {
  const int before = threads_alive();
  std::ptrdiff_t bytes = heap().bytes;
  int thrown = 0;
  int made = 0;
  fail_each_allocation([] {}, [] { const ThreadPool pool(4); },
                       [&] {
                         ++thrown;
                         EXPECT_TRUE(as_many_threads_as(before));
                       },
                       [&] {
                         ++made;
                         EXPECT_TRUE(as_many_threads_as(before));
                       });
  EXPECT_GT(thrown, 4);
  EXPECT_GT(made, 2);
  EXPECT_EQ(heap().bytes, bytes);
  const ThreadPool pool(4);
  bytes = heap().bytes;
  Tally* runs = nullptr;
  std::unique_ptr<Tally> owned;
  fail_each_allocation(
      [&] {
        owned = std::make_unique<Tally>(30);
        runs = owned.get();
      },
      [&] { pool.parallel_for(30, [&](Index i) { runs->raise(i); }); },
      [] { ADD_FAILURE() << "the caller needs no memory"; }, [&] { EXPECT_TRUE(runs->all(1)); });
}

#if !defined(FOVEA_TEST_TSAN)  // which ends children that start threads

TEST(ForkedPool, WorksInTheChildAndEndsThere) {
  auto pool = std::make_unique<ThreadPool>(4);
  expect_every_task_once(*pool, 50);
  EXPECT_EQ(in_child_process([&] {
              expect_every_task_once(*pool, 50);
              EXPECT_EQ(error_of([&] { pool->parallel_for(9, fail_at); }), "failed at 0");
              pool.reset();
              const ThreadPool own(4);
              EXPECT_EQ(own.concurrency(), 4);
              expect_every_task_once(own, 50);
              // And in a child of the child.
              EXPECT_EQ(in_child_process([&] { expect_every_task_once(own, 50); }), "well");
            }),
            "well");
  expect_every_task_once(*pool, 50);
}

/// While another thread of the parent is in calls of the pool.
TEST(ForkedPool, WorksWhateverOtherThreadsDid) {
  const ThreadPool pool(3);
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) {
      std::atomic<int> runs{0};
      pool.parallel_for(3, [&](Index) { ++runs; });
      if (runs != 3) std::abort();
    }
  });
  for (int round = 0; round < 12; ++round) {
    ASSERT_EQ(in_child_process([&] {
                for (int again = 0; again < 3; ++again) expect_every_task_once(pool, 20);
              }),
              "well");
  }
  done = true;
  other.join();
}

TEST(ForkedPool, WorksInAChildOfATask) {
  const ThreadPool pool(3);
  std::mutex one_at_a_time;
  std::vector<std::string> results(3);
  pool.parallel_for(3, [&](Index i) {
    const std::lock_guard lock(one_at_a_time);
    results[as_size(i)] = in_child_process([&] { expect_every_task_once(pool, 20); });
  });
  EXPECT_EQ(results, std::vector<std::string>(3, "well"));
}

/// An Eigen pool that was idle when the process was forked: the caller runs all tasks.
TEST(ForkedPool, OfEigenLeavesAllTasksToTheCaller) {
  Eigen::ThreadPool pool(3);
  const EigenExecutor executor(&pool);
  expect_every_task_once(executor, 50);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // its threads sleep
  EXPECT_EQ(in_child_process([&] {
              for (int round = 0; round < 2000; ++round) expect_every_task_once(executor, 3);
            }),
            "well");
}

#endif
#endif

TEST(CancelledPool, OfEigenLeavesAllTasksToTheCaller) {
  for (int round = 0; round < 20; ++round) {
    Eigen::ThreadPool pool(3);
    const EigenExecutor executor(&pool);
    if (round % 2 == 0) pool.Cancel();
    expect_every_task_once(executor, 50);
  }
}

/// Cancelled while its threads are in calls: these end, and no thread waits for others.
TEST(CancelledPool, OfEigenEndsTheCallsThatRun) {
  for (int round = 0; round < 20; ++round) {
    Eigen::ThreadPool pool(3);
    const EigenExecutor executor(&pool);
    Tally runs(40);
    executor.parallel_for(40, [&](Index i) {
      if (i == 2) pool.Cancel();
      linger();
      runs.raise(i);
    });
    EXPECT_TRUE(runs.all(1));
    expect_every_task_once(executor, 20);
  }
}

/// Threads that share a pool, some of whose calls throw, while others make pools and end them.
TEST(SharedPool, OfThreadsWhoseCallsThrow) {
  const ThreadPool pool(3);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int round = 0; round < 60; ++round) {
        if (thread == 3) {
          const ThreadPool own(1 + round % 3);
          own.parallel_for(5, [&](Index) { pool.parallel_for(2, [](Index) {}); });
          continue;
        }
        std::atomic<int> runs{0};
        const std::string error = error_of([&] {
          pool.parallel_for(20, [&](Index i) {
            ++runs;
            if (i >= 10 + thread && round % 2 == 0) fail_at(i);
          });
        });
        const std::string expected =
            round % 2 == 0 ? "failed at " + std::to_string(10 + thread) : "no error";
        if (error != expected || runs < 10) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace fovea_test
