// SPDX-License-Identifier: MIT
/// \file
/// Executors for tests: one that holds any other, and ones with odd schedules.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "fovea/core/executor.hpp"
#include "support/index.hpp"

namespace fovea_test {

/// Any executor, by reference.
class AnyExecutor {
 public:
  static constexpr bool kTakesSmallWork = true;

  template <class E>
  static AnyExecutor of(E& executor) {
    return AnyExecutor(
        static_cast<int>(executor.concurrency()),
        [&executor](Index n, const std::function<void(Index)>& f) { executor.parallel_for(n, f); });
  }

  int concurrency() const { return concurrency_; }
  void parallel_for(Index n, const std::function<void(Index)>& f) const { run_(n, f); }

 private:
  using Run = std::function<void(Index, const std::function<void(Index)>&)>;

  AnyExecutor(int concurrency, Run run) : concurrency_(concurrency), run_(std::move(run)) {}

  int concurrency_;
  Run run_;
};

/// Two threads that sleep, as far as it says; it counts how often it is asked to run something.
struct CountsCalls {
  Index& calls;

  static int concurrency() { return 2; }
  template <class F>
  void parallel_for(Index n, F&& f) const {
    ++calls;
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

}  // namespace fovea_test
