// SPDX-License-Identifier: MIT
/// \file
/// Executors on Eigen's thread pool: `ThreadPool` owns its threads, `EigenExecutor` borrows those
/// of an Eigen::ThreadPoolDevice.
#pragma once

#include "fovea/core/config.hpp"
#include "fovea/core/executor.hpp"

#if __has_include(<Eigen/ThreadPool>)
#include <Eigen/ThreadPool>
#else
#include <unsupported/Eigen/CXX11/ThreadPool>
#endif

#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <atomic>
#include <charconv>
#include <concepts>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

FOVEA_NAMESPACE_BEGIN

/// Most threads that a ThreadPool runs on. Eigen's pool asserts below 2^14, and its tables grow
/// with the square of the count.
inline constexpr int kMaxConcurrency = 1024;

/// The environment variable FOVEA_NUM_THREADS if it is a positive integer, else the CPUs of the
/// affinity mask (Linux), else std::thread::hardware_concurrency(); in [1, kMaxConcurrency].
inline int default_concurrency() {
  if (const char* text = std::getenv("FOVEA_NUM_THREADS")) {
    const char* const end = text + std::strlen(text);
    int count = 0;
    const auto parsed = std::from_chars(text, end, count);
    if (parsed.ec == std::errc{} && parsed.ptr == end && count > 0) {
      return (std::min)(count, kMaxConcurrency);
    }
  }
#if defined(__linux__)
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) {
    return std::clamp(CPU_COUNT(&mask), 1, kMaxConcurrency);
  }
#endif
  return static_cast<int>(
      std::clamp(std::thread::hardware_concurrency(), 1u, unsigned{kMaxConcurrency}));
}

namespace detail {

/// One parallel_for: what its caller shares with the closures that it leaves in a pool's queue.
/// Indices are claimed from a counter, so a closure that comes late finds none and touches
/// nothing of the caller's, who may be gone by then.
class PoolJob {
 public:
  /// Keeps the address of f.
  template <class F>
  PoolJob(Index count, const F& f)
      : count_(count),
        unfinished_(count),
        f_(&f),
        call_([](const void* callable, Index i) { (*static_cast<const F*>(callable))(i); }) {}

  /// Runs calls until all are claimed.
  void work() noexcept {
    for (Index i = next_++; i < count_; i = next_++) {
      calls_.run(i, [this](Index index) { call_(f_, index); });
      if (--unfinished_ == 0) {
        const std::lock_guard lock(mutex_);
        all_done_.notify_all();
      }
    }
  }

  /// Returns when no call is left or running; rethrows what the lowest index threw.
  void wait() {
    std::unique_lock lock(mutex_);
    all_done_.wait(lock, [this] { return unfinished_ == 0; });
    calls_.rethrow();
  }

 private:
  const Index count_;
  std::atomic<Index> next_{0};
  std::atomic<Index> unfinished_;
  const void* const f_;
  void (*const call_)(const void* callable, Index i);
  GuardedCalls calls_;
  std::mutex mutex_;
  std::condition_variable all_done_;
};

/// Executor::parallel_for over a pool, null for none. The caller works too and waits only for
/// calls that already run, so neither a busy pool nor a refused closure can block it. Without
/// memory for what it would share with the pool it does all the work itself.
template <class F>
void pool_parallel_for(Eigen::ThreadPoolInterface* pool, int concurrency, Index n, F& f) {
  const bool serial = pool == nullptr || concurrency == 1 || n <= 1;
  if (serial || inside_call() || pool->CurrentThreadId() >= 0) {
    Serial::parallel_for(n, f);
    return;
  }
  const auto call = [&f](Index i) { f(i); };
  std::shared_ptr<PoolJob> job;
  if (caught([&] { job = std::make_shared<PoolJob>(n, call); })) {
    Serial::parallel_for(n, f);
    return;
  }
  for (Index helper = 1; helper < (std::min)(n, Index{concurrency}); ++helper) {
    if (caught([&] { pool->Schedule([job] { job->work(); }); })) break;  // fewer helpers
  }
  job->work();
  job->wait();
}

/// A thread that starts at once and waits to be told what to run; ends without, if never told.
class PoolThread {
 public:
  /// \throws std::system_error if no thread can be had.
  PoolThread() : thread_([this] { run(); }) {}
  PoolThread(const PoolThread&) = delete;
  PoolThread& operator=(const PoolThread&) = delete;
  ~PoolThread() {
    start({});
    thread_.join();
  }

  /// Runs `loop` in the thread. Only the first call counts.
  void start(std::function<void()> loop) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(started_, true)) return;
    loop_ = std::move(loop);
    wake_.notify_one();
  }

  /// Eigen calls it when a pool is cancelled.
  void OnCancel() {}

 private:
  void run() {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return started_; });
    }
    if (loop_) loop_();
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool started_ = false;
  std::function<void()> loop_;
  std::thread thread_;  // last: it uses the others
};

using PoolThreads = std::vector<std::unique_ptr<PoolThread>>;

/// At most count threads: stops at the first that `make` throws for.
template <class Make>
PoolThreads make_pool_threads(int count, Make&& make) {
  PoolThreads threads;
  threads.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    if (caught([&] { threads.push_back(make()); })) break;
  }
  return threads;
}

/// The thread environment of Eigen's pool, over threads that exist already. Eigen's own creates
/// them inside the pool's constructor, where a failure leaves the pool waiting for ever: it ends
/// only when all of its NumThreads() threads are idle.
struct PoolEnvironment {
  struct Task {
    std::function<void()> f;
  };
  using EnvThread = PoolThread;

  EnvThread* CreateThread(std::function<void()> loop) {
    std::unique_ptr<PoolThread> thread = std::move(threads->back());
    threads->pop_back();
    thread->start(std::move(loop));
    return thread.release();
  }
  static Task CreateTask(std::function<void()> f) { return Task{std::move(f)}; }
  static void ExecuteTask(const Task& task) { task.f(); }

  std::shared_ptr<PoolThreads> threads;
};

using OwnedPool = Eigen::ThreadPoolTempl<PoolEnvironment>;

/// Eigen's pool over these threads; null if there are none.
inline std::unique_ptr<OwnedPool> make_pool(PoolThreads threads) {
  if (threads.empty()) return nullptr;
  const auto count = static_cast<int>(threads.size());
  constexpr bool allow_spinning = false;
  return std::make_unique<OwnedPool>(
      count, allow_spinning, PoolEnvironment{std::make_shared<PoolThreads>(std::move(threads))});
}

/// What Eigen::ThreadPoolDevice offers, told without the header of Eigen's tensors.
template <class Device>
concept EigenPoolDevice = requires(const Device& device) {
  { device.getPool() } -> std::convertible_to<Eigen::ThreadPoolInterface*>;
  { device.numThreads() } -> std::convertible_to<int>;
};

}  // namespace detail

/// The calling thread and `concurrency - 1` threads of its own, which sleep when there is no work.
/// Any number of threads may call at the same time. If the system refuses threads, there are fewer.
/// \pre no call is running when it is destroyed.
class ThreadPool {
 public:
  ThreadPool() : ThreadPool(default_concurrency()) {}

  /// \param concurrency counts the calling thread; above kMaxConcurrency it is cut to that.
  /// \throws std::invalid_argument if concurrency < 1.
  explicit ThreadPool(int concurrency)
      : ThreadPool(concurrency, [] { return std::make_unique<detail::PoolThread>(); }) {}

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int concurrency() const { return pool_ == nullptr ? 1 : pool_->NumThreads() + 1; }

  /// As Executor says. From inside a call of any executor it runs in that thread, in order.
  template <class F>
  void parallel_for(Index n, F&& f) const {
    detail::pool_parallel_for(pool_.get(), concurrency(), n, f);
  }

 protected:
  /// `make` returns the next thread; when it throws, those made so far are the pool.
  template <class Make>
  ThreadPool(int concurrency, Make&& make)
      : pool_(detail::make_pool(detail::make_pool_threads(own_threads(concurrency), make))) {}

 private:
  static int own_threads(int concurrency) {
    if (concurrency < 1) {
      FOVEA_THROW(std::invalid_argument("ThreadPool: concurrency is " +
                                        std::to_string(concurrency) + "; expected at least 1"));
    }
    return (std::min)(concurrency, kMaxConcurrency) - 1;
  }

  std::unique_ptr<detail::OwnedPool> pool_;
};

/// An Executor on the threads of an Eigen pool, which must outlive it. Cheap to copy.
class EigenExecutor {
 public:
  /// Takes part with the calling thread, so that NumThreads() threads work in all; null: it alone.
  explicit EigenExecutor(Eigen::ThreadPoolInterface* pool)
      : EigenExecutor(pool, pool == nullptr ? 1 : pool->NumThreads()) {}

  /// The pool of an Eigen::ThreadPoolDevice, and as many threads as the device was given.
  template <detail::EigenPoolDevice Device>
  explicit EigenExecutor(const Device& device)
      : EigenExecutor(device.getPool(), device.numThreads()) {}

  int concurrency() const { return concurrency_; }

  /// As Executor says. From inside a call of any executor, or from a thread of the pool, it runs in
  /// that thread, in order.
  template <class F>
  void parallel_for(Index n, F&& f) const {
    detail::pool_parallel_for(pool_, concurrency_, n, f);
  }

 private:
  EigenExecutor(Eigen::ThreadPoolInterface* pool, int concurrency)
      : pool_(pool), concurrency_(pool == nullptr ? 1 : (std::max)(concurrency, 1)) {}

  Eigen::ThreadPoolInterface* pool_;
  int concurrency_;
};

template <detail::EigenPoolDevice Device>
struct ExecutorAdapter<Device> {
  static EigenExecutor adapt(const Device& device) { return EigenExecutor(device); }
};

FOVEA_NAMESPACE_END
