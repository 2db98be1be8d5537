// SPDX-License-Identifier: MIT
/// \file
/// Who runs the tasks of an operator, and whose memory they use: the concept Executor; `Serial`,
/// which uses the calling thread alone; and `for_each_task`, the scheduler of all operators.
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <system_error>
#include <type_traits>
#include <utility>

#include "fovea/core/config.hpp"
#include "fovea/core/float_environment.hpp"
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
/// Operators hold one that does not do as it says in bounds: what it leaves out is done by the
/// calling thread, calls that it makes twice or with a wrong index find nothing to do, and a
/// concurrency that changes is asked for once a pass. One thing is up to the executor: when
/// parallel_for returns or throws, none of its calls may be running or still to come.
template <class E>
concept Executor = requires(E& e, Index n, const detail::IndexCall& f) {
  /// The number of calls that may run at once, the one in the calling thread included. It is at
  /// least 1, and the same each time the same thread asks. Operators take scratch memory for so
  /// many, or for as many as they have tasks.
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

  /// Calls f(0) to f(n - 1) one after the other. An exception ends the loop and reaches the caller.
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

/// The number of workers that `for_each_task` uses: min(concurrency, tasks), so 0 without tasks.
template <class E>
requires Executor<std::remove_reference_t<E>> Index worker_count(E&& executor, Index tasks) {
  return std::clamp(tasks, Index{0},
                    (std::max)(Index{1}, static_cast<Index>(executor.concurrency())));
}

/// Work of at most so many multiply-adds stays on the calling thread: it is done, in about a tenth
/// of a millisecond, before waking another thread pays. (In measurements on two cores, two threads
/// of a ThreadPool took 1.05 to 1.8 times as long as one below 2^21, and were even or ahead from
/// 2^22 on.)
inline constexpr double kSerialProducts = 1 << 22;

/// Reading a row of operands from memory takes as long as so many rows of products with it.
/// (Measured on AVX2 with keys and values of 64 numbers: 22 ns, and 3 ns for the products of a
/// row.)
inline constexpr Index kRowsToRead = 7;

/// Whether an executor says, by a constant kTakesSmallWork, that its threads are awake: it is then
/// given all work.
template <class E>
inline constexpr bool kTakesSmallWork = requires {
  requires bool{E::kTakesSmallWork};
};

/// An executor that uses another one for work that is large enough, and otherwise the calling
/// thread alone.
template <class E>
class ForWork {
 public:
  /// \param executor must outlive this object
  /// \param products multiply-adds of the whole work, at most, or as many as take its time
  ForWork(E& executor, double products) : executor_(executor) {
    if (!kTakesSmallWork<E> && products <= kSerialProducts) return;
    concurrency_ = (std::max)(Index{1}, static_cast<Index>(executor.concurrency()));
  }

  /// That of the executor, at least 1; 1 for small work. It never changes: scratch memory for so
  /// many workers must do for all tasks of the work.
  Index concurrency() const { return concurrency_; }
  /// Runs the calls on the executor.
  template <class F>
  void parallel_for(Index n, F&& f) const {
    executor_.parallel_for(n, f);
  }
  /// That of the executor, if it has memory.
  auto& memory() const requires HasMemory<E> { return executor_.memory(); }

 private:
  E& executor_;
  Index concurrency_ = 1;
};

/// A ForWork of the executor, which must outlive it; `Serial` is itself.
/// \param products products() is the number that ForWork takes; it is not asked where no thread
/// could be woken
template <class E, class Products>
requires Executor<E>
auto for_work(E& executor, const Products& products) {
  if constexpr (std::same_as<std::remove_const_t<E>, Serial>) {
    return Serial{};
  } else {
    const bool asks = !kTakesSmallWork<E> && executor.concurrency() > 1;
    return ForWork<E>(executor, asks ? products() : 0.0);
  }
}

/// Calls f(task, worker) once for each task in [0, tasks). Each worker takes the next task in turn.
/// The number `worker` is in [0, worker_count(executor, tasks)), and no two calls with the same one
/// run at once, so it may be the index of a slot of scratch memory. What a task computes must not
/// depend on its worker. Tasks run in the calling thread's floating-point environment: rounding
/// mode, flush-to-zero bits, trap masks.
///
/// If tasks throw, the exception of the lowest one is rethrown once no task is running, and higher
/// tasks may be left out. With one worker the executor is not called at all.
///
/// If the executor gets no memory or no threads, the calling thread computes the tasks that are
/// left. Any other exception of the executor is rethrown, unless a task threw one.
/// \throws what `memory_of(executor).require()` does, before any task runs
template <class E, class F>
requires Executor<std::remove_reference_t<E>>
void for_each_task(E&& executor, Index tasks, F&& f) {
  memory_of(executor).require();
  const Index workers = worker_count(executor, tasks);
  if (workers <= 1) {
    for (Index task = 0; task < tasks; ++task) f(task, Index{0});
    return;
  }
  std::atomic<Index> next{0};
  std::atomic<Index> free_workers{workers};
  const detail::FloatEnvironment of_caller;
  detail::GuardedCalls calls;
  const auto work = [&](Index worker) {
    for (Index task = next++; task < tasks; task = next++) {
      calls.run(task, [&](Index i) { f(i, worker); });
    }
  };
  // Calls are numbered here: an executor that repeats an index must not share out scratch twice.
  const auto work_once = [&](Index /*index*/) {
    const Index worker = --free_workers;
    if (worker < 0) return;
    const detail::FloatEnvironmentScope as_caller(of_caller);
    work(worker);
  };
  const std::exception_ptr refused =
      detail::caught([&] { executor.parallel_for(workers, work_once); });
  const bool fails = refused && !detail::is_shortage(refused);
  if (!fails) work(0);
  calls.rethrow();
  if (fails) std::rethrow_exception(refused);
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

/// The Executor that ExecutorAdapter makes of x, for example of an Eigen::ThreadPoolDevice.
template <class X>
requires(!Executor<X>) && requires(X& x) {
  { ExecutorAdapter<std::remove_const_t<X>>::adapt(x) } -> Executor;
}
auto as_executor(X& x) { return ExecutorAdapter<std::remove_const_t<X>>::adapt(x); }

namespace detail {

/// Types that can run the work of an operator.
template <class E>
concept RunsWork = requires(E& executor) {
  as_executor(executor);
};

}  // namespace detail

/// Whether an executor can bring memory to one call after the other.
template <class E>
concept LeasesMemory = requires(E& executor) {
  /// ScratchMemory that belongs to the caller while the result lives; it may be refused
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

  /// Whether the executor says that its threads are awake.
  static constexpr bool kTakesSmallWork = fovea::kTakesSmallWork<E>;

  /// That of the executor.
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

/// Whether an executor stands for a sequence of which this process holds some rows, as that of
/// distributed::with_rows does. Layers then compute the rows that are here, and meet the other
/// processes for what is made of all rows.
template <class E>
concept SpreadsRows = requires {
  requires std::remove_cvref_t<E>::kSpreadsRows;
};

/// What an operator's call runs on: as_executor(x), and if that brings memory, a LeasedExecutor of
/// it. Memory is so held by one call of an operator, and free again between the calls of a layer.
/// \throws what lease() does: std::invalid_argument if an Arena is in use
template <class X>
decltype(auto) for_call(X& x) {
  static_assert(
      !SpreadsRows<X>,
      "fovea: this operator or layer has no implementation for a sequence that is distributed "
      "over ranks");
  constexpr bool runs_work = detail::RunsWork<X>;
  static_assert(runs_work,
                "fovea: what runs the work is an Executor, for instance fovea::ThreadPool, or an "
                "Eigen::ThreadPoolDevice (<fovea/core/thread_pool.hpp>)");
  if constexpr (!runs_work) {
    return Serial{};  // the sentence above is enough
  } else if constexpr (LeasesMemory<X>) {
    return LeasedExecutor<X>(x);
  } else {
    return as_executor(x);
  }
}

FOVEA_NAMESPACE_END
