// SPDX-License-Identifier: MIT
/// \file
/// Executors for tests: a type-erased one, and ones with odd schedules.
#pragma once

#include <algorithm>
#include <cfenv>
#include <functional>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "fovea/core/arena.hpp"
#include "fovea/core/executor.hpp"
#include "support/index.hpp"

namespace fovea_test {

/// The memory of one call: that of an arena, or of the system.
class AnyLease {
 public:
  explicit AnyLease(fovea::Arena* arena) {
    if (arena != nullptr) lease_.emplace(*arena);
  }
  AnyLease(const AnyLease&) = delete;
  AnyLease& operator=(const AnyLease&) = delete;

  fovea::Workspace take(Index count, Index piece_bytes) {
    return lease_ ? lease_->take(count, piece_bytes)
                  : fovea::SystemMemory::take(count, piece_bytes);
  }
  void require() const {
    if (lease_) lease_->require();
  }
  bool is_by_shape() const { return lease_.has_value(); }

 private:
  std::optional<fovea::ArenaLease> lease_;
};

/// Any executor, by reference, and an arena if one is given.
class AnyExecutor {
 public:
  static constexpr bool kTakesSmallWork = true;

  template <class E>
  static AnyExecutor of(E& executor, fovea::Arena* arena = nullptr) {
    return AnyExecutor(
        [&executor] { return static_cast<int>(executor.concurrency()); },
        [&executor](Index n, const std::function<void(Index)>& f) { executor.parallel_for(n, f); },
        arena);
  }

  int concurrency() const { return concurrency_(); }
  void parallel_for(Index n, const std::function<void(Index)>& f) const { run_(n, f); }
  AnyLease lease() const { return AnyLease(arena_); }

 private:
  using Run = std::function<void(Index, const std::function<void(Index)>&)>;

  AnyExecutor(std::function<int()> concurrency, Run run, fovea::Arena* arena)
      : concurrency_(std::move(concurrency)), run_(std::move(run)), arena_(arena) {}

  std::function<int()> concurrency_;
  Run run_;
  fovea::Arena* arena_;
};

/// A serial executor, type-erased.
inline const AnyExecutor& in_this_thread() {
  static fovea::Serial serial;
  static const AnyExecutor any = AnyExecutor::of(serial);
  return any;
}

/// Calls f with the executor, or with what runs all in the calling thread if it is null.
template <class F>
void on_executor(const AnyExecutor* executor, F&& f) {
  executor == nullptr ? f(fovea::Serial{}) : f(*executor);
}

/// Claims to have two sleeping threads, and counts its calls.
struct CountsCalls {
  Index& calls;

  static int concurrency() { return 2; }
  template <class F>
  void parallel_for(Index n, F&& f) const {
    ++calls;
    for (Index i = 0; i < n; ++i) f(i);
  }
};

/// Claims to have six threads; `most` becomes the largest number of tasks of a call.
struct CountsTasks {
  static constexpr bool kTakesSmallWork = true;
  Index& most;

  static int concurrency() { return 6; }
  template <class F>
  void parallel_for(Index n, F&& f) const {
    most = (std::max)(most, n);
    for (Index i = 0; i < n; ++i) f(i);
  }
};

/// Calls in the calling thread, the last index first: worker n - 1 does everything.
struct Backwards {
  static constexpr bool kTakesSmallWork = true;

  static int concurrency() { return 5; }
  template <class F>
  static void parallel_for(Index n, F&& f) {
    for (Index i = n; i-- > 0;) f(i);
  }
};

/// A thread per call, started in a shuffled order that changes with each use.
struct Shuffled {
  static constexpr bool kTakesSmallWork = true;

  int turn = 0;
  static int concurrency() { return 7; }
  template <class F>
  void parallel_for(Index n, F&& f) {
    std::vector<std::thread> threads;
    const Index step = turn++ % 2 == 0 ? 3 : 5;  // 7 is prime, and n is at most 7
    for (Index i = 0; i < 7; ++i) {
      const Index call = (i * step + turn) % 7;
      if (call < n) threads.emplace_back([&f, call] { f(call); });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

/// Calls in threads that compute in the default floating-point environment, as those of a pool do
/// that was made before the caller changed its own.
struct InThreadsOfTheirOwn {
  static constexpr bool kTakesSmallWork = true;

  static int concurrency() { return 4; }
  template <class F>
  static void parallel_for(Index n, F&& f) {
    for (Index i = 0; i < n; ++i) {
      std::thread([&f, i] {
        std::fesetenv(FE_DFL_ENV);
        f(i);
      }).join();
    }
  }
};

/// An executor that fails at a given call.
struct Breaking {
  static constexpr bool kTakesSmallWork = true;
  bool breaks = false;

  static constexpr int concurrency() { return 2; }
  template <class F>
  void parallel_for(Index n, F&& f) const {
    if (breaks) throw std::runtime_error("the thread broke");
    for (Index i = 0; i < n; ++i) f(i);
  }
};

/// An executor whose memory can be in use by another call, like an Arena's.
struct Refusing {
  bool refuses = false;

  static constexpr int concurrency() { return 1; }
  template <class F>
  static void parallel_for(Index n, F&& f) {
    fovea::Serial::parallel_for(n, f);
  }
  fovea::SystemMemory lease() const {
    if (refuses) throw std::invalid_argument("Memory: in use");
    return {};
  }
};

/// The calling thread, which records the matrices that layers announce to read.
struct RecordsReads : fovea::Serial {
  mutable std::vector<std::pair<const void*, Index>> reads;  ///< data and bytes
  void will_read(const void* data, Index bytes) const { reads.emplace_back(data, bytes); }
};

}  // namespace fovea_test
