// SPDX-License-Identifier: MIT
/// \file
/// `ExecutorRef`, a reference to an executor of any type and to the memory of one call: what every
/// pass runs on, so that no pass is compiled once for each type of executor. With it
/// `for_each_task`, the scheduler of all operators.
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <exception>
#include <memory>
#include <type_traits>

#include "fovea/core/executor.hpp"
#include "fovea/core/float_environment.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The address of an object, const or not, without its type.
template <class X>
void* address_of(X& x) noexcept {
  return const_cast<void*>(static_cast<const void*>(std::addressof(x)));
}

/// Whether an executor has a constant kOnlyCounts that is true.
template <class E>
constexpr bool only_counts() {
  if constexpr (requires { E::kOnlyCounts; }) return E::kOnlyCounts;
  return false;
}

}  // namespace detail

template <class Signature>
class FunctionRef;

/// A reference to a callable object of any type, which must outlive it.
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  /// Refers to f. It may be a temporary if the reference is not used after the full expression.
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, FunctionRef> &&
           std::is_invocable_r_v<R, F&, Args...>)
      // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
      FunctionRef(F&& f)
  noexcept
      : object_(detail::address_of(f)), call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}

  /// Calls the object.
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

/// A reference to an executor of any type and to its memory, both of which must outlive it. It is
/// an Executor with memory, and as cheap to copy as three pointers.
class ExecutorRef {
  struct Table {
    void (*parallel_for)(void*, Index, FunctionRef<void(Index)>);
    Workspace (*take)(void*, Index, Index);
    void (*require)(void*);
    bool (*is_by_shape)(void*);
    bool (*takes_small_work)(void*);
    void (*will_read)(void*, const void*, Index);
    bool only_counts;
  };

 public:
  /// The calling thread alone, with memory from the system.
  ExecutorRef() : ExecutorRef(kSerial) {}

  /// Refers to an executor, whose concurrency is read here, once. It may be a temporary if the
  /// reference is not used after the full expression.
  template <class E>
  requires(!std::same_as<std::remove_cvref_t<E>, ExecutorRef> &&
           Executor<std::remove_reference_t<E>>)
      // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
      ExecutorRef(E&& executor)
      : object_(detail::address_of(executor)),
        table_(&kTable<std::remove_reference_t<E>>),
        concurrency_((std::max)(Index{1}, static_cast<Index>(executor.concurrency()))) {}

  /// The executor's, at least 1. It never changes: scratch memory for that many workers is
  /// sufficient for every task of a pass.
  Index concurrency() const { return concurrency_; }
  /// Runs the calls on the executor.
  void parallel_for(Index n, FunctionRef<void(Index)> f) const {
    table_->parallel_for(object_, n, f);
  }
  /// Whether the executor's threads are awake.
  bool takes_small_work() const { return table_->takes_small_work(object_); }
  /// Tells the executor that a matrix is about to be read.
  void will_read(const void* data, Index bytes) const { table_->will_read(object_, data, bytes); }
  /// Whether the call only counts its memory (call/counted_memory.hpp): it takes all of it, and
  /// then neither reads nor computes anything. The executor declares it by a constant kOnlyCounts.
  bool only_counts() const { return table_->only_counts; }

  /// The same memory with the calling thread alone.
  ExecutorRef alone() const {
    ExecutorRef serial = *this;
    serial.concurrency_ = 1;
    return serial;
  }

  /// A reference to the executor's ScratchMemory.
  class Memory {
   public:
    /// Takes memory. \throws as the executor's memory does
    Workspace take(Index count, Index piece_bytes) const {
      return table_->take(object_, count, piece_bytes);
    }
    /// \throws as the executor's memory does
    void require() const { table_->require(object_); }
    /// Whether a call takes what its shape may need, even if its numbers do not.
    bool is_by_shape() const { return table_->is_by_shape(object_); }
    /// As the executor's.
    bool only_counts() const { return table_->only_counts; }

   private:
    friend ExecutorRef;
    explicit Memory(const ExecutorRef& executor)
        : object_(executor.object_), table_(executor.table_) {}

    void* object_;
    const Table* table_;
  };

  /// The executor's memory, or the system's.
  Memory memory() const { return Memory(*this); }

 private:
  template <class E>
  static constexpr Table kTable = {
      [](void* e, Index n, FunctionRef<void(Index)> f) { static_cast<E*>(e)->parallel_for(n, f); },
      [](void* e, Index count, Index piece_bytes) {
        return memory_of(*static_cast<E*>(e)).take(count, piece_bytes);
      },
      [](void* e) { memory_of(*static_cast<E*>(e)).require(); },
      [](void* e) { return bool{memory_of(*static_cast<E*>(e)).is_by_shape()}; },
      [](void* e) { return fovea::takes_small_work(*static_cast<const E*>(e)); },
      [](void* e, const void* data, Index bytes) {
        fovea::will_read(*static_cast<const E*>(e), data, bytes);
      },
      detail::only_counts<E>()};
  static constexpr Serial kSerial{};

  void* object_;
  const Table* table_;
  Index concurrency_;
};

/// The number of workers that `for_each_task` uses: min(concurrency, tasks), so 0 without tasks. A
/// call that only counts its memory counts it for all workers, since a call of the same shape with
/// packed sequences may have more tasks.
inline Index worker_count(const ExecutorRef& executor, Index tasks) {
  if (executor.only_counts()) return executor.concurrency();
  return std::clamp(tasks, Index{0}, executor.concurrency());
}

/// Work of at most this many multiply-adds stays on the calling thread: it is done, in about a
/// tenth of a millisecond, before waking another thread pays. (In measurements on two cores, two
/// threads of a ThreadPool took 1.05 to 1.8 times as long as one below 2^21, and were even or ahead
/// from 2^22 on.)
inline constexpr double kSerialProducts = 1 << 22;

/// Reading a row of operands from memory takes as long as this many rows of products with it.
/// (Measured on AVX2 with keys and values of 64 numbers: 22 ns, and 3 ns for the products of a
/// row.)
inline constexpr Index kRowsToRead = 7;

/// The executor if the work is large enough or the executor's threads are awake, and otherwise the
/// calling thread alone with the executor's memory.
/// \param products products() is the number of multiply-adds of the whole work, at most, or as many
/// as take its time; it is called only if more than one thread could be used
template <class Products>
ExecutorRef for_work(const ExecutorRef& executor, const Products& products) {
  const bool asks = !executor.takes_small_work() && executor.concurrency() > 1;
  return asks && products() <= kSerialProducts ? executor.alone() : executor;
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
/// \throws what the memory's require() does, before any task runs
inline void for_each_task(const ExecutorRef& executor, Index tasks,
                          FunctionRef<void(Index, Index)> f) {
  executor.memory().require();
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

FOVEA_NAMESPACE_END
