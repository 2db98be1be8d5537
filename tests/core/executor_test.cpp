// SPDX-License-Identifier: MIT
// fovea_test(ALONE)
/// \file
/// Tests of core/executor.hpp and core/thread_pool.hpp.
#define EIGEN_USE_THREADS
#include <gtest/gtest.h>

#include <barrier>
#include <cstdlib>
#include <functional>
#include <latch>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <unsupported/Eigen/CXX11/Tensor>
#include <vector>

#include "core/executor_suite.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/tally.hpp"

#if defined(__linux__)
#include <sched.h>
#endif

namespace fovea_test::core_executor {

using fovea::as_executor;
using fovea::EigenExecutor;
using fovea::Executor;
using fovea::Serial;
using fovea::ThreadPool;

/// Has exactly the members that the concept requires: not const, not copyable, a narrow integer,
/// and a thread for every call.
class ArchetypeExecutor {
 public:
  ArchetypeExecutor() = default;
  ArchetypeExecutor(const ArchetypeExecutor&) = delete;
  ArchetypeExecutor& operator=(const ArchetypeExecutor&) = delete;

  short concurrency() { return 3; }  // NOLINT: an unusual type on purpose

  template <class F>
  void parallel_for(Index n, const F& f) {
    std::vector<std::thread> threads;
    for (Index i = 0; i < n; ++i) threads.emplace_back([&f, i] { f(i); });
    for (std::thread& thread : threads) thread.join();
  }
};

/// Claims a concurrency but fails when called.
struct Uncallable {
  int claimed;
  int concurrency() const { return claimed; }
  static void parallel_for(Index, const auto&) { throw std::runtime_error("called"); }
};

struct NoConcurrency {
  template <class F>
  void parallel_for(Index n, const F& f);
};
struct NoParallelFor {
  int concurrency();
};
struct WantsRanges {
  int concurrency();
  void parallel_for(Index n, void (*f)(Index begin, Index end));
};

static_assert(Executor<ArchetypeExecutor>);
static_assert(Executor<Serial> && Executor<const Serial>);
static_assert(Executor<ThreadPool> && Executor<const ThreadPool>);
static_assert(Executor<EigenExecutor> && Executor<const EigenExecutor>);
static_assert(!Executor<NoConcurrency> && !Executor<NoParallelFor> && !Executor<WantsRanges>);
static_assert(!Executor<Eigen::ThreadPoolDevice> && !Executor<Eigen::DefaultDevice>);

template <class X>
concept Adaptable = requires(X& x) {
  as_executor(x);
};
static_assert(Adaptable<ThreadPool> && Adaptable<const ThreadPool>);
static_assert(Adaptable<Eigen::ThreadPoolDevice> && Adaptable<const Eigen::ThreadPoolDevice>);
static_assert(!Adaptable<int> && !Adaptable<Eigen::DefaultDevice>);

struct SerialHolder {
  Serial executor;
};
template <int concurrency>
struct PoolHolder {
  ThreadPool executor{concurrency};
};
struct AwakeHolder {
  ThreadPool executor{3};
  decltype(executor.stay_awake()) awake = executor.stay_awake();
};
struct EigenHolder {
  Eigen::ThreadPool pool{3};
  Eigen::ThreadPoolDevice device{&pool, 3};
  EigenExecutor executor{device};
};

using Holders = ::testing::Types<SerialHolder, PoolHolder<1>, PoolHolder<2>, PoolHolder<3>,
                                 PoolHolder<4>, AwakeHolder, EigenHolder>;
INSTANTIATE_TYPED_TEST_SUITE_P(Core, ExecutorSuite, Holders);

/// Keeps every thread of an Eigen pool busy until it is destroyed.
class Occupation {
 public:
  explicit Occupation(Eigen::ThreadPoolInterface& pool)
      : started_(pool.NumThreads()), ended_(pool.NumThreads()) {
    for (int i = 0; i < pool.NumThreads(); ++i) {
      pool.Schedule([this] {
        started_.count_down();
        release_.wait();
        ended_.count_down();
      });
    }
    started_.wait();
  }
  ~Occupation() {
    release_.count_down();
    ended_.wait();
  }

 private:
  std::latch started_;
  std::latch release_{1};
  std::latch ended_;
};

TEST(GuardedCalls, SkipOnlyCallsAboveAnError) {
  fovea::detail::GuardedCalls calls;
  std::vector<Index> made;
  const auto call = [&](Index i) {
    EXPECT_TRUE(fovea::detail::inside_call());
    made.push_back(i);
    if (i == 5 || i == 3 || i == 2) fail_at(i);
  };
  for (const Index i : {8, 5, 6, 3, 4, 1, 2, 7, 0}) calls.run(i, call);
  EXPECT_EQ(made, (std::vector<Index>{8, 5, 3, 1, 2, 0}));
  EXPECT_FALSE(fovea::detail::inside_call());
  EXPECT_EQ(error_of([&] { calls.rethrow(); }), "failed at 2");
}

TEST(GuardedCalls, KeepTheLowestOfSimultaneousErrors) {
  for (int round = 0; round < 50; ++round) {
    fovea::detail::GuardedCalls calls;
    std::barrier meeting(4);
    std::vector<std::thread> threads;
    for (Index i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        calls.run(i, [&](Index index) {
          meeting.arrive_and_wait();
          fail_at(index);
        });
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(error_of([&] { calls.rethrow(); }), "failed at 0");
  }
}

TEST(ForEachTask, SimultaneousWorkersDiffer) {
  const ThreadPool pool(4);
  std::barrier meeting(4);
  Tally workers(4);
  fovea::for_each_task(pool, 4, [&](Index, Index worker) {
    meeting.arrive_and_wait();
    workers.raise(worker);
  });
  EXPECT_TRUE(workers.all(1));
}

TEST(ForEachTask, AcceptsAnyExecutor) {
  ArchetypeExecutor executor;
  EXPECT_EQ(fovea::worker_count(executor, 50), 3);
  Tally runs(50);
  fovea::for_each_task(executor, 50, [&](Index task, Index) { runs.raise(task); });
  EXPECT_TRUE(runs.all(1));
  EXPECT_EQ(error_of([&] {
              fovea::for_each_task(executor, 50, [](Index task, Index) {
                if (task >= 20) fail_at(task);
              });
            }),
            "failed at 20");
}

TEST(ForEachTask, OneWorkerNeedsNoExecutorCall) {
  const Uncallable executor{4};
  Index runs = 0;
  fovea::for_each_task(executor, 0, [&](Index, Index) { ++runs; });
  EXPECT_EQ(runs, 0);
  fovea::for_each_task(executor, 1, [&](Index task, Index worker) { runs += 1 + task + worker; });
  EXPECT_EQ(runs, 1);
  EXPECT_THROW(fovea::for_each_task(executor, 2, [&](Index, Index) { ++runs; }),
               std::runtime_error);
  EXPECT_EQ(runs, 1);
}

TEST(ForEachTask, SingleTaskMayUseTheExecutor) {
  const ThreadPool pool(3);
  std::barrier meeting(pool.concurrency());
  fovea::for_each_task(pool, 1, [&](Index, Index) {
    pool.parallel_for(pool.concurrency(), [&](Index) { meeting.arrive_and_wait(); });
  });
}

TEST(AsExecutor, ReturnsAnExecutorItself) {
  ThreadPool pool(2);
  const Serial serial;
  static_assert(std::is_same_v<decltype(as_executor(pool)), ThreadPool&>);
  static_assert(std::is_same_v<decltype(as_executor(serial)), const Serial&>);
  EXPECT_EQ(&as_executor(pool), &pool);
  EXPECT_EQ(&as_executor(serial), &serial);
}

TEST(AsExecutor, AdaptsAnEigenDevice) {
  Eigen::ThreadPool pool(3);
  const Eigen::ThreadPoolDevice device(&pool, 2);
  static_assert(std::is_same_v<decltype(as_executor(device)), EigenExecutor>);
  EXPECT_EQ(as_executor(device).concurrency(), 2);
  Tally calls(30);
  as_executor(device).parallel_for(30, [&](Index i) { calls.raise(i); });
  EXPECT_TRUE(calls.all(1));
}

TEST(ThreadPool, UsesAllItsThreads) {
  for (const int concurrency : {1, 2, 3, 4}) {
    const ThreadPool pool(concurrency);
    EXPECT_EQ(pool.concurrency(), concurrency);
    std::barrier meeting(concurrency);  // passed only if that many calls run at once
    for (int round = 0; round < 20; ++round) {
      pool.parallel_for(concurrency, [&](Index) { meeting.arrive_and_wait(); });
    }
  }
}

TEST(ThreadPool, RefusesConcurrencyBelowOne) {
  for (const int concurrency : {0, -1, -2147483647 - 1}) {
    try {
      const ThreadPool pool(concurrency);
      FAIL() << concurrency;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), "ThreadPool: concurrency is " + std::to_string(concurrency) +
                                  "; expected at least 1");
    }
  }
}

TEST(ThreadPool, AnotherPoolInsideACallRunsInline) {
  const ThreadPool outer(2);
  const ThreadPool inner(2);
  std::atomic<int> strays{0};
  outer.parallel_for(2, [&](Index) {
    const auto self = std::this_thread::get_id();
    inner.parallel_for(8, [&](Index) {
      if (std::this_thread::get_id() != self) ++strays;
      linger();
    });
  });
  EXPECT_EQ(strays, 0);
}

TEST(ThreadPool, CanBeDestroyedWithoutWork) {
  for (int round = 0; round < 50; ++round) const ThreadPool pool(1 + round % 4);
}

TEST(ThreadPool, CanBeDestroyedWithHelpersQueued) {
  for (int round = 0; round < 50; ++round) {
    const ThreadPool pool(4);
    std::atomic<int> calls{0};
    pool.parallel_for(4, [&](Index) { ++calls; });
    EXPECT_EQ(calls, 4);
  }
}

/// A pool whose thread number `made` cannot be created.
class PoolOfFew : public ThreadPool {
 public:
  PoolOfFew(int concurrency, int made)
      : ThreadPool(concurrency, [left = made]() mutable {
          if (left-- == 0) {
            throw std::system_error(std::make_error_code(
                std::errc::resource_unavailable_try_again));  // what std::thread throws
          }
          return std::make_unique<fovea::detail::PoolThread>();
        }) {}
};

TEST(ThreadPool, HasFewerThreadsIfTheyCannotBeCreated) {
  for (const int made : {0, 1, 2, 6}) {
    const PoolOfFew pool(8, made);
    EXPECT_EQ(pool.concurrency(), made + 1);
    std::barrier meeting(made + 1);
    pool.parallel_for(made + 1, [&](Index) { meeting.arrive_and_wait(); });
    Tally calls(100);
    pool.parallel_for(100, [&](Index i) { calls.raise(i); });
    EXPECT_TRUE(calls.all(1));
  }
}

TEST(ThreadPool, ThreadNeverStartedEnds) {
  const fovea::detail::PoolThreads threads = fovea::detail::make_pool_threads(
      3, [] { return std::make_unique<fovea::detail::PoolThread>(); });
  EXPECT_EQ(threads.size(), 3u);
}

TEST(EigenExecutor, CountsTheCallerAmongTheThreads) {
  Eigen::ThreadPool pool(3);
  const EigenExecutor executor(&pool);
  EXPECT_EQ(executor.concurrency(), 3);
  std::barrier meeting(3);
  std::atomic<int> in_caller{0};
  const auto caller = std::this_thread::get_id();
  executor.parallel_for(3, [&](Index) {
    meeting.arrive_and_wait();
    if (std::this_thread::get_id() == caller) ++in_caller;
  });
  EXPECT_EQ(in_caller, 1);
}

TEST(EigenExecutor, WorksWithoutAPool) {
  const EigenExecutor executor(nullptr);
  EXPECT_EQ(executor.concurrency(), 1);
  const Eigen::ThreadPoolDevice device(nullptr, 4);
  EXPECT_EQ(EigenExecutor(device).concurrency(), 1);
  Tally calls(9);
  executor.parallel_for(9, [&](Index i) { calls.raise(i); });
  EXPECT_TRUE(calls.all(1));
}

TEST(EigenExecutor, RunsInlineOnAThreadOfItsPool) {
  Eigen::ThreadPool pool(3);
  const EigenExecutor executor(&pool);
  std::latch done(1);
  std::atomic<bool> inlined{true};
  pool.Schedule([&] {
    const auto self = std::this_thread::get_id();
    executor.parallel_for(20, [&](Index) {
      if (std::this_thread::get_id() != self) inlined = false;
      linger();
    });
    done.count_down();
  });
  done.wait();
  EXPECT_TRUE(inlined);
}

TEST(EigenExecutor, CallerRunsAllTasksWhenThePoolIsBusy) {
  Eigen::ThreadPool pool(2);
  const EigenExecutor executor(&pool);
  {
    const Occupation busy(pool);
    for (int round = 0; round < 100; ++round) {
      std::vector<Index> seen(10);  // gone before the queued helpers run
      const auto caller = std::this_thread::get_id();
      executor.parallel_for(10, [&](Index i) {
        if (std::this_thread::get_id() == caller) seen[as_size(i)] = i + 1;
      });
      for (Index i = 0; i < 10; ++i) ASSERT_EQ(seen[as_size(i)], i + 1);
    }
    EXPECT_EQ(error_of([&] { executor.parallel_for(10, fail_at); }), "failed at 0");
  }
  std::barrier meeting(2);
  executor.parallel_for(2, [&](Index) { meeting.arrive_and_wait(); });
}

TEST(EigenExecutor, WorksWhenTheQueuesAreFull) {
  Eigen::ThreadPool pool(2);
  const EigenExecutor executor(&pool);
  const Occupation busy(pool);
  std::atomic<int> inline_runs{0};
  const auto caller = std::this_thread::get_id();
  for (int i = 0; i < 5000; ++i) {  // a queue holds 1024; Eigen runs the rest in the caller
    pool.Schedule([&inline_runs, caller] {
      if (std::this_thread::get_id() == caller) ++inline_runs;
    });
  }
  EXPECT_GT(inline_runs, 0);
  for (int round = 0; round < 50; ++round) {
    Tally calls(10);
    executor.parallel_for(10, [&](Index i) { calls.raise(i); });
    ASSERT_TRUE(calls.all(1));
  }
}

/// A pool that refuses every closure after the first `accepted`, which it never runs.
class RefusingPool : public Eigen::ThreadPoolInterface {
 public:
  explicit RefusingPool(std::size_t accepted) : accepted_(accepted) {}
  void Schedule(std::function<void()> f) override {
    if (kept_.size() == accepted_) throw std::runtime_error("no room");
    kept_.push_back(std::move(f));
  }
  int NumThreads() const override { return 4; }
  int CurrentThreadId() const override { return -1; }
  void run_kept() {
    for (const auto& f : kept_) f();
  }

 private:
  std::size_t accepted_;
  std::vector<std::function<void()>> kept_;
};

TEST(EigenExecutor, WorksIfAClosureIsRefusedOrNeverRuns) {
  for (const std::size_t accepted : {0u, 1u, 2u, 3u}) {
    RefusingPool pool(accepted);
    {
      std::vector<Index> seen(10);
      EigenExecutor(&pool).parallel_for(10, [&](Index i) { seen[as_size(i)] = i + 1; });
      for (Index i = 0; i < 10; ++i) EXPECT_EQ(seen[as_size(i)], i + 1);
    }
    pool.run_kept();  // late: finds nothing to do
  }
}

class DefaultConcurrency : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* text = std::getenv("FOVEA_NUM_THREADS")) before_ = text;
  }
  void TearDown() override {
    unsetenv("FOVEA_NUM_THREADS");
    if (before_) setenv("FOVEA_NUM_THREADS", before_->c_str(), 1);
  }
  static int with(const char* text) {
    setenv("FOVEA_NUM_THREADS", text, 1);
    return fovea::default_concurrency();
  }
  static int without() {
    unsetenv("FOVEA_NUM_THREADS");
    return fovea::default_concurrency();
  }

 private:
  std::optional<std::string> before_;
};

TEST_F(DefaultConcurrency, ObeysTheEnvironment) {
  EXPECT_EQ(with("1"), 1);
  EXPECT_EQ(with("7"), 7);
  EXPECT_EQ(with("2147483647"), fovea::kMaxConcurrency);
  EXPECT_EQ(with("3"), 3);
  EXPECT_EQ(ThreadPool().concurrency(), 3);
}

TEST_F(DefaultConcurrency, IgnoresInvalidNumbers) {
  const int machine = without();
  EXPECT_GE(machine, 1);
  for (const char* text : {"", "0", "-2", "four", "4x", "4 ", " 4", "1.5", "99999999999"}) {
    EXPECT_EQ(with(text), machine) << '"' << text << '"';
  }
}

#if defined(__linux__)
TEST_F(DefaultConcurrency, CountsTheAffinityMask) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  EXPECT_EQ(without(), std::min(CPU_COUNT(&mask), fovea::kMaxConcurrency));
  std::size_t first = 0;
  while (!CPU_ISSET(first, &mask)) ++first;
  CPU_ZERO(&mask);
  CPU_SET(first, &mask);
  std::thread([&mask] {  // the mask belongs to a thread
    ASSERT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
    EXPECT_EQ(without(), 1);
  })
      .join();
}
#endif

}  // namespace fovea_test::core_executor
