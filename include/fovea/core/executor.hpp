// SPDX-License-Identifier: MIT
/// \file
/// The concept Executor, which runs an operator's tasks; `Serial`, which only uses the calling
/// thread; and how other types become executors and provide scratch memory.
#pragma once

#include <atomic>
#include <concepts>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

#include "fovea/core/config.hpp"
#include "fovea/core/workspace.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The simplest callable that `parallel_for` of an Executor has to take.
struct IndexCall {
  void operator()(Index i) const;
};

}  // namespace detail

/// An executor runs calls, possibly several at once on different threads.
///
/// Operators tolerate executors that do not behave like this: the calling thread makes calls that
/// were left out, repeated calls and wrong indices have no effect, and concurrency is read once per
/// pass. One thing operators rely on: when parallel_for returns or throws, no call may be running
/// or follow.
template <class E>
concept Executor = requires(E& e, Index n, const detail::IndexCall& f) {
  /// The number of calls that may run at once, including that in the calling thread. It is at least
  /// 1, and constant for each thread. Operators allocate scratch memory for that many, or for as
  /// many as they have tasks.
  { e.concurrency() } -> std::integral;
  /// Calls f(i) once for each i in [0, n), in any order and on any threads, and returns when all
  /// calls are done. If calls throw, the exception of the lowest index is rethrown once no call is
  /// running; calls with higher indices may then be left out. If this is called inside another
  /// call, it may run everything in that thread.
  e.parallel_for(n, f);
};

/// An executor that makes every call in the calling thread, in order.
struct Serial {
  /// Always 1.
  static constexpr int concurrency() { return 1; }

  /// Calls f(0) to f(n - 1) in order. An exception ends the loop and reaches the caller.
  template <class F>
  static void parallel_for(Index n, F&& f) {
    for (Index i = 0; i < n; ++i) f(i);
  }
};

namespace detail {

/// Calls f, and returns the exception that it threw, or null.
template <class F>
std::exception_ptr caught(F&& f) noexcept {
#if defined(__cpp_exceptions)
  try {
    f();
  } catch (...) {
    return std::current_exception();
  }
#else
  f();
#endif
  return nullptr;
}

/// Whether an executor threw this exception because it could not get memory or threads.
inline bool is_shortage(const std::exception_ptr& error) {
#if defined(__cpp_exceptions)
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const std::system_error&) {
    return true;
  } catch (...) {
    return false;
  }
#else
  static_cast<void>(error);
  return false;
#endif
}

/// Whether this thread is inside a call of some parallel_for.
inline bool& inside_call() noexcept {
  static thread_local bool inside = false;
  return inside;
}

/// The calls of one parallel_for, which may be made from any threads. The exception of the lowest
/// index is kept. A call is left out only if a lower one threw, so the schedule cannot change which
/// exception is rethrown.
class GuardedCalls {
 public:
  /// Calls f(i) while the thread is marked as inside a call. An exception is kept, not thrown.
  template <class F>
  void run(Index i, F&& f) noexcept {
    if (lowest_.load(std::memory_order_relaxed) < i) return;
    const bool outer = std::exchange(inside_call(), true);
    std::exception_ptr error = caught([&] { f(i); });
    inside_call() = outer;
    if (error) keep(i, std::move(error));
  }

  /// Throws the exception that was kept, if there is one. \pre no call is running
  void rethrow() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void keep(Index i, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (lowest_.load(std::memory_order_relaxed) < i) return;
    lowest_.store(i, std::memory_order_relaxed);
    std::swap(error_, error);
  }

  std::atomic<Index> lowest_{(std::numeric_limits<Index>::max)()};
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace detail

/// Whether an executor has memory for a call.
template <class E>
concept HasMemory = requires(E& executor) {
  /// its ScratchMemory
  requires ScratchMemory<std::remove_reference_t<decltype(executor.memory())>>;
};

/// The ScratchMemory of a call on this executor: `executor.memory()` if it has some, as for_call
/// makes it have, and otherwise SystemMemory.
template <class E>
decltype(auto) memory_of(E& executor) {
  if constexpr (HasMemory<E>) {
    return executor.memory();
  } else {
    return SystemMemory{};
  }
}

/// Whether an executor's threads are awake: it is then given all work. An executor declares this by
/// a constant kTakesSmallWork, or, if it changes, by a function takes_small_work().
template <class E>
bool takes_small_work(const E& executor) {
  if constexpr (requires { executor.takes_small_work(); }) {
    return executor.takes_small_work();
  } else {
    return requires { requires bool{E::kTakesSmallWork}; };
  }
}

/// Keeps the threads of an executor awake for as long as the result lives, if it can: as
/// ThreadPool::stay_awake does.
template <class E>
auto stay_awake(const E& executor) {
  if constexpr (requires { executor.stay_awake(); }) {
    return executor.stay_awake();
  } else {
    return std::monostate{};
  }
}

/// Tells an executor that a matrix is about to be read, if it uses that: as ThreadPool::will_read
/// does.
template <class E>
void will_read(const E& executor, const void* data, Index bytes) {
  if constexpr (requires { executor.will_read(data, bytes); }) executor.will_read(data, bytes);
}

/// How a type that is no Executor becomes one: a specialisation has `static E adapt(const X&)`,
/// whose result E is an Executor. The specialisation for Eigen::ThreadPoolDevice is in
/// fovea/core/thread_pool.hpp, which has to be included before such a device is used.
template <class X>
struct ExecutorAdapter;

/// x itself, since it is an Executor.
template <Executor X>
X& as_executor(X& x) {
  return x;
}

/// The Executor that ExecutorAdapter constructs from x, for example an Eigen::ThreadPoolDevice.
template <class X>
requires(!Executor<X>) && requires(X& x) {
  { ExecutorAdapter<std::remove_const_t<X>>::adapt(x) } -> Executor;
}
auto as_executor(X& x) { return ExecutorAdapter<std::remove_const_t<X>>::adapt(x); }

/// The compiler's message for other types.
#define FOVEA_RUNS_WORK                                                            \
  "fovea: the executor must be an Executor, for example fovea::ThreadPool, or an " \
  "Eigen::ThreadPoolDevice (<fovea/core/thread_pool.hpp>)"

namespace detail {

/// Types that can run the work of an operator.
template <class E>
concept ExecutorLike = requires(E& executor) {
  as_executor(executor);
};

}  // namespace detail

/// Whether an executor can lend memory to successive calls.
template <class E>
concept LeasesMemory = requires(E& executor) {
  /// ScratchMemory that belongs to the caller during the result's lifetime; it may be refused
  requires ScratchMemory<decltype(executor.lease())>;
};

/// An executor whose memory belongs to one call for as long as this object lives.
template <LeasesMemory E>
class LeasedExecutor {
 public:
  /// \param executor must outlive this object
  /// \throws what its lease() does
  explicit LeasedExecutor(E& executor) : executor_(executor), lease_(executor.lease()) {}
  LeasedExecutor(const LeasedExecutor&) = delete;
  LeasedExecutor& operator=(const LeasedExecutor&) = delete;

  /// Whether the executor's threads are awake.
  bool takes_small_work() const { return fovea::takes_small_work(executor_); }
  /// Tells the executor that a matrix is about to be read.
  void will_read(const void* data, Index bytes) const { fovea::will_read(executor_, data, bytes); }

  /// The executor's.
  Index concurrency() const { return static_cast<Index>(executor_.concurrency()); }
  /// Runs the calls on the executor.
  template <class F>
  void parallel_for(Index n, F&& f) const {
    executor_.parallel_for(n, f);
  }
  /// The memory of the call.
  auto& memory() { return lease_; }

 private:
  E& executor_;
  decltype(std::declval<E&>().lease()) lease_;
};

/// Whether an executor represents a sequence of which this process has some rows, as that of
/// distributed::sequence_parallel does. Layers then compute these rows, and call the other
/// processes for results that depend on all rows.
template <class E>
concept ShardsRows = requires {
  requires std::remove_cvref_t<E>::kShardsRows;
};

/// The compiler's message for such an executor where rows must be in one process.
#define FOVEA_SHARDS_NO_ROWS                                                                     \
  "fovea: this operator or layer has no implementation for a sequence that is distributed over " \
  "ranks"

/// The executor of an operator's call: as_executor(x), or, if that lends memory, a LeasedExecutor
/// of it, so that the memory belongs to one call of an operator and is free between the calls of a
/// layer.
/// \throws what lease() does: std::invalid_argument if an Arena is in use
template <class X>
decltype(auto) for_call(X& x) {
  static_assert(!ShardsRows<X>, FOVEA_SHARDS_NO_ROWS);
  constexpr bool runs_work = detail::ExecutorLike<X>;
  static_assert(runs_work, FOVEA_RUNS_WORK);
  if constexpr (!runs_work) {
    return Serial{};  // the assertion above is enough
  } else if constexpr (LeasesMemory<X>) {
    return LeasedExecutor<X>(x);
  } else {
    return as_executor(x);
  }
}

FOVEA_NAMESPACE_END
