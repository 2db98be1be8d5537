// SPDX-License-Identifier: MIT
/// \file
/// How the threads of Eigen's pools share the calls of one parallel_for.
#pragma once

#if __has_include(<Eigen/ThreadPool>)
#include <Eigen/ThreadPool>
#else
#include <unsupported/Eigen/CXX11/ThreadPool>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "fovea/core/executor.hpp"
#include "fovea/core/read_ahead.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// How long threads that are kept awake look for work before they sleep.
inline constexpr std::chrono::microseconds kPatience{200};

/// Tells the processor that a loop waits for another thread.
inline void relax() noexcept {
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
  __builtin_ia32_pause();
#elif defined(__GNUC__) && defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// One parallel_for: the state that its caller shares with the closures that it leaves in a pool's
/// queue. Indices are claimed from a counter. So a closure that runs late finds none, and does not
/// access objects of the caller, which may be destroyed by then.
class PoolJob {
 public:
  /// Keeps the address of f, which must outlive the calls.
  template <class F>
  PoolJob(Index count, const F& f)
      : count_(count),
        unfinished_(count),
        f_(&f),
        call_([](const void* callable, Index i) { (*static_cast<const F*>(callable))(i); }) {}

  /// Makes calls until every index is claimed.
  void work() noexcept {
    for (Index i = next_++; i < count_; i = next_++) {
      calls_.run(i, [this](Index index) { call_(f_, index); });
      if (--unfinished_ == 0) {
        const std::lock_guard lock(mutex_);
        all_done_.notify_all();
      }
    }
  }

  /// Returns when no call is left or running, and rethrows the exception of the lowest index.
  /// \param ahead what the caller prefetches meanwhile if threads are kept awake, and so is the
  /// caller; null if they are not
  void wait(ReadAhead* ahead = nullptr) {
    // The last calls mostly end together: to sleep and be woken takes longer than to look again,
    // and so does leaving the processor to other threads.
    for (int i = 0; i < kLooksBeforeYield && unfinished_ != 0; ++i) {
      if (ahead != nullptr) ahead->advance();
      relax();
    }
    for (int i = 0; i < kLooksBeforeSleep && unfinished_ != 0; ++i) std::this_thread::yield();
    if (ahead != nullptr) {
      for (const auto since = Clock::now(); unfinished_ != 0 && Clock::now() - since < kPatience;) {
        std::this_thread::yield();
      }
    }
    std::unique_lock lock(mutex_);
    all_done_.wait(lock, [this] { return unfinished_ == 0; });
    calls_.rethrow();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kLooksBeforeYield = 500;
  static constexpr int kLooksBeforeSleep = 64;

  const Index count_;
  std::atomic<Index> next_{0};
  std::atomic<Index> unfinished_;
  const void* const f_;
  void (*const call_)(const void* callable, Index i);
  GuardedCalls calls_;
  std::mutex mutex_;
  std::condition_variable all_done_;
};

/// The threads of a pool that are kept awake between one parallel_for and the next: having done
/// their part of a job, they watch for another one, for at most kPatience at a time. A pool's own
/// queue wakes threads one by one, which takes longer than a layer of a decoder computes.
class AwakeThreads {
 public:
  /// Threads watch while at least one user keeps them awake.
  void begin() noexcept { ++users_; }
  /// Ends what begin() began.
  void end() noexcept { --users_; }
  /// Whether a user keeps the threads awake.
  bool is_on() const noexcept { return users_.load(std::memory_order_relaxed) > 0; }

  /// What the threads prefetch while they watch.
  ReadAhead& ahead() noexcept { return ahead_; }

  /// Gives a job to all threads that watch. Returns their number.
  Index offer(const std::shared_ptr<PoolJob>& job) {
    const std::lock_guard lock(mutex_);
    job_ = job;
    number_.store(number_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    return watching_;
  }

  /// Works on the jobs that are offered, until none comes or no user keeps threads awake.
  void watch() noexcept {
    unsigned seen = begin_to_watch();
    for (auto since = Clock::now();;) {
      if (number_.load(std::memory_order_acquire) != seen) {
        newest(seen)->work();
        since = Clock::now();
      } else if ((!is_on() || Clock::now() - since > kPatience) && ends_to_watch(seen)) {
        return;
      } else {
        ahead_.advance();
        relax();
      }
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  unsigned begin_to_watch() noexcept {
    const std::lock_guard lock(mutex_);
    ++watching_;
    return number_.load(std::memory_order_relaxed);
  }
  // A thread that was counted when a job was offered works on it before it leaves.
  bool ends_to_watch(unsigned seen) noexcept {
    const std::lock_guard lock(mutex_);
    if (number_.load(std::memory_order_relaxed) != seen) return false;
    if (--watching_ == 0) job_.reset();
    return true;
  }
  std::shared_ptr<PoolJob> newest(unsigned& seen) noexcept {
    const std::lock_guard lock(mutex_);
    seen = number_.load(std::memory_order_relaxed);
    return job_;
  }

  std::atomic<int> users_{0};
  std::atomic<unsigned> number_{0};  // of the newest job
  std::mutex mutex_;
  std::shared_ptr<PoolJob> job_;
  Index watching_ = 0;
  ReadAhead ahead_;
};

/// The parallel_for of an Executor over a pool, which is null if there is none. The caller works
/// too, and waits only for calls that are running already, so neither a busy pool nor a refused
/// closure can block it. If there is no memory for the state that it would share with the pool, the
/// caller does all the work.
/// \param awake what threads of the pool that are kept awake look at; null if none ever are
template <class F>
void pool_parallel_for(Eigen::ThreadPoolInterface* pool, int concurrency, Index n, F& f,
                       const std::shared_ptr<AwakeThreads>& awake = {}) {
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
  const bool stays_awake = awake != nullptr && awake->is_on();
  const Index helpers = (std::min)(n, Index{concurrency}) - 1;
  for (Index helper = stays_awake ? awake->offer(job) : 0; helper < helpers; ++helper) {
    const auto help = [job, watched = stays_awake ? awake : nullptr] {
      job->work();
      if (watched != nullptr) watched->watch();
    };
    if (caught([&] { pool->Schedule(help); })) break;  // go on with fewer helpers
  }
  job->work();
  job->wait(stays_awake ? &awake->ahead() : nullptr);
}

}  // namespace detail

FOVEA_NAMESPACE_END
