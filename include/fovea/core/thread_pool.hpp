// SPDX-License-Identifier: MIT
/// \file
/// Executors on Eigen's thread pool: `ThreadPool` owns its threads, and `EigenExecutor` borrows
/// those of an Eigen::ThreadPoolDevice.
#pragma once

#include "fovea/core/config.hpp"
#include "fovea/core/pool_job.hpp"

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

#include <algorithm>
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

/// The largest number of threads that a ThreadPool uses. Eigen's pool asserts that it has fewer
/// than 2^14, and its tables grow with the square of their number.
inline constexpr int kMaxConcurrency = 1024;

/// The number of threads that a ThreadPool has by default, in [1, kMaxConcurrency]: the environment
/// variable FOVEA_NUM_THREADS if it is a positive integer, otherwise the number of CPUs in the
/// affinity mask (on Linux), otherwise std::thread::hardware_concurrency().
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

/// A thread that starts at once and waits for work. It may end without any.
class PoolThread {
 public:
  /// \throws std::system_error if the system refuses the thread
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

  /// Eigen calls this when a pool is cancelled; there is nothing to do.
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
  std::thread thread_;  // declared last, since it uses the other members
};

using PoolThreads = std::vector<std::unique_ptr<PoolThread>>;

/// Makes `count` threads, or fewer: it stops at the first one for which `make` throws.
template <class Make>
PoolThreads make_pool_threads(int count, Make&& make) {
  PoolThreads threads;
  threads.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    if (caught([&] { threads.push_back(make()); })) break;
  }
  return threads;
}

/// The environment from which Eigen's pool takes its threads. These exist already. Eigen's own
/// environment creates them in the constructor of the pool, where a failure would leave the pool
/// waiting for ever, because it ends only when all of its NumThreads() threads are idle.
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

/// Eigen's pool over these threads, or null if there are none.
inline std::unique_ptr<OwnedPool> make_pool(PoolThreads threads) {
  if (threads.empty()) return nullptr;
  const auto count = static_cast<int>(threads.size());
  // A thread without work looks for some for a while before it sleeps: an operator of several steps
  // has the next one ready sooner than the system wakes a thread.
  constexpr bool allow_spinning = true;
  return std::make_unique<OwnedPool>(
      count, allow_spinning, PoolEnvironment{std::make_shared<PoolThreads>(std::move(threads))});
}

/// The number of this process; 0 on systems without fork().
inline long process_id() noexcept {
#if defined(__unix__) || defined(__APPLE__)
  return long{::getpid()};
#else
  return 0;
#endif
}

/// What Eigen::ThreadPoolDevice offers, described without the header of Eigen's tensors.
template <class Device>
concept EigenPoolDevice = requires(const Device& device) {
  { device.getPool() } -> std::convertible_to<Eigen::ThreadPoolInterface*>;
  { device.numThreads() } -> std::convertible_to<int>;
};

}  // namespace detail

/// An Executor that uses the calling thread and `concurrency - 1` threads of its own, which look
/// for work for some microseconds, and then sleep until there is some. Any number of threads may
/// use it at the same time. If the system refuses some of its threads, it works with fewer.
///
/// A child process of fork() has none of these threads. There the pool makes all calls in the
/// calling thread, whatever the parent's threads were doing, and its destructor does not wait.
/// \pre no call is running when it is destroyed
class ThreadPool {
 public:
  /// A pool of default_concurrency() threads, the calling one included.
  ThreadPool() : ThreadPool(default_concurrency()) {}

  /// \param concurrency number of threads, the calling one included, limited to kMaxConcurrency
  /// \throws std::invalid_argument if concurrency < 1; std::bad_alloc
  explicit ThreadPool(int concurrency)
      : ThreadPool(concurrency, [] { return std::make_unique<detail::PoolThread>(); }) {}

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool() {
    // In a forked process, these threads do not exist and cannot be joined.
    if (!is_at_home()) static_cast<void>(pool_.release());
  }

  /// How many calls may run at once: one in each thread of the pool, and one in the calling thread.
  int concurrency() const { return pool_ == nullptr ? 1 : pool_->NumThreads() + 1; }

  /// Makes the calls as Executor requires. Inside a call of any executor they run in the calling
  /// thread, in order.
  template <class F>
  void parallel_for(Index n, F&& f) const {
    detail::pool_parallel_for(is_at_home() ? pool_.get() : nullptr, concurrency(), n, f, awake_);
  }

  /// What stay_awake() returns: the threads are kept awake while it lives.
  class Awake {
   public:
    /// \param threads those of a pool, which may be destroyed before this
    explicit Awake(std::shared_ptr<detail::AwakeThreads> threads) : threads_(std::move(threads)) {
      threads_->begin();
    }
    Awake(const Awake&) = delete;
    Awake& operator=(const Awake&) = delete;
    ~Awake() { threads_->end(); }

   private:
    std::shared_ptr<detail::AwakeThreads> threads_;
  };

  /// Keeps threads awake between calls while the result lives: those that worked look for the next
  /// call for up to 200 microseconds, and calls share work that is not worth waking a thread for.
  /// Decoders of layers do it during a step; a program does it around its loop of steps. It costs
  /// the time of the waiting threads.
  [[nodiscard]] Awake stay_awake() const { return Awake(awake_); }
  /// Whether threads are kept awake.
  bool takes_small_work() const { return awake_->is_on(); }
  /// Announces that a matrix is about to be read. While threads that are kept awake wait, they
  /// prefetch what was read after it the last time.
  void will_read(const void* data, Index bytes) const noexcept {
    if (awake_->is_on()) awake_->ahead().note(data, bytes);
  }

 protected:
  /// \param make returns the next thread; when it throws, the pool keeps the threads made so far
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

  /// Whether this is the process that made the threads.
  bool is_at_home() const noexcept { return detail::process_id() == process_; }

  std::shared_ptr<detail::AwakeThreads> awake_ = std::make_shared<detail::AwakeThreads>();
  std::unique_ptr<detail::OwnedPool> pool_;
  long process_ = detail::process_id();
};

/// An Executor on the threads of an Eigen pool, which must outlive it. It is cheap to copy.
class EigenExecutor {
 public:
  /// Uses the calling thread and threads of the pool, NumThreads() in all. If the pool is null, it
  /// uses the calling thread alone.
  explicit EigenExecutor(Eigen::ThreadPoolInterface* pool)
      : EigenExecutor(pool, pool == nullptr ? 1 : pool->NumThreads()) {}

  /// Uses the pool of an Eigen::ThreadPoolDevice, and as many threads as the device was given.
  template <detail::EigenPoolDevice Device>
  explicit EigenExecutor(const Device& device)
      : EigenExecutor(device.getPool(), device.numThreads()) {}

  /// How many calls may run at once, the one in the calling thread included; at least 1.
  int concurrency() const { return concurrency_; }

  /// Makes the calls as Executor requires. Inside a call of any executor, or in a thread of the
  /// pool, they run in the calling thread, in order.
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

/// How an Eigen::ThreadPoolDevice runs the work of operators.
template <detail::EigenPoolDevice Device>
struct ExecutorAdapter<Device> {
  /// An executor on the pool of the device, which must outlive it.
  static EigenExecutor adapt(const Device& device) { return EigenExecutor(device); }
};

FOVEA_NAMESPACE_END
