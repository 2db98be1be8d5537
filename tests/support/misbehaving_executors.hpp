// SPDX-License-Identifier: MIT
/// \file
/// User executors that violate the concept. Operators must give correct results on all of them
/// except ThrowsAfter.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "support/index.hpp"

namespace fovea_test {

/// A thread for each of the calls. Those that began have ended when it returns or, if the system
/// refuses one, throws. (libc++ 19 has no std::jthread.)
template <class F>
void in_threads(Index n, const F& f) {
  struct Joined {
    std::vector<std::thread> all;
    ~Joined() {
      for (std::thread& thread : all) thread.join();
    }
  } threads;
  for (Index i = 0; i < n; ++i) threads.all.emplace_back([&f, i] { f(i); });
}

/// Makes calls of the indices that are chosen, in this thread or in many.
struct Makes {
  static constexpr bool kTakesSmallWork = true;

  std::vector<Index> (*indices)(Index n);
  bool threads = false;

  static int concurrency() { return 4; }
  template <class F>
  void parallel_for(Index n, const F& f) const {
    const std::vector<Index> all = indices(n);
    const auto call = [&](Index i) { f(all[as_size(i)]); };
    if (threads) return in_threads(std::ssize(all), call);
    for (Index i = 0; i < std::ssize(all); ++i) call(i);
  }
};

/// Makes some calls and then throws what no operator expects.
struct ThrowsAfter {
  static constexpr bool kTakesSmallWork = true;

  Index calls = 0;

  static int concurrency() { return 4; }
  template <class F>
  void parallel_for(Index n, const F& f) const {
    in_threads(std::min(n, calls), f);
    throw std::runtime_error("the user's executor");
  }
};

/// Makes half of the calls and then has no memory, or no threads.
template <class Error>
struct RunsShort {
  static constexpr bool kTakesSmallWork = true;

  static int concurrency() { return 4; }
  template <class F>
  static void parallel_for(Index n, const F& f) {
    in_threads(n / 2, f);
    if constexpr (std::is_same_v<Error, std::system_error>) {
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    } else {
      throw Error();
    }
  }
};

/// Says something else each time.
struct ChangesConcurrency {
  static constexpr bool kTakesSmallWork = true;

  mutable std::atomic<int> asked{0};

  int concurrency() const { return 1 + 3 * asked++ % 11; }
  template <class F>
  static void parallel_for(Index n, const F& f) {
    in_threads(n, f);
  }
};

/// Says that it is larger or smaller than it is.
struct ClaimsConcurrency {
  static constexpr bool kTakesSmallWork = true;

  std::int64_t claimed;

  std::int64_t concurrency() const { return claimed; }
  template <class F>
  static void parallel_for(Index n, const F& f) {
    for (Index i = 0; i < n; ++i) f(i);
  }
};

/// Calls f(name, executor) for executors that repeat calls and report wrong concurrency, so that an
/// operator could allocate less memory than it uses.
template <class F>
void for_each_false_claim(F&& f) {
  Makes twice{[](Index n) {
                std::vector<Index> all;
                for (Index i = 0; i < n; ++i) all.insert(all.end(), {i, i});
                return all;
              },
              true};
  f(std::string("every call twice in threads"), twice);
  ChangesConcurrency changes;
  f(std::string("another concurrency each time"), changes);
  for (const int claimed : {0, 1'000'000}) {
    ClaimsConcurrency claims{claimed};
    f("a concurrency of " + std::to_string(claimed), claims);
  }
}

/// Calls f(name, executor) for each way to misbehave.
template <class F>
void for_each_misbehaving(F&& f) {
  for_each_false_claim(f);
  const auto makes = [&](const std::string& name, std::vector<Index> (*indices)(Index)) {
    for (const bool threads : {false, true}) {
      Makes executor{indices, threads};
      f(name + (threads ? " in threads" : ""), executor);
    }
  };
  makes("no call", [](Index) { return std::vector<Index>(); });
  makes("half of the calls", [](Index n) { return std::vector<Index>(as_size(n / 2), 1); });
  makes("the last call alone", [](Index n) { return std::vector<Index>{n - 1}; });
  makes("one call ten times", [](Index) { return std::vector<Index>(10, 0); });
  makes("indices that are none",
        [](Index n) { return std::vector<Index>{-1, n, n + 7, INT64_MIN, INT64_MAX, 0}; });
  RunsShort<std::bad_alloc> no_memory;
  f(std::string("no memory"), no_memory);
  RunsShort<std::system_error> no_threads;
  f(std::string("no threads"), no_threads);
  for (const int claimed : {-3, 1}) {
    ClaimsConcurrency claims{claimed};
    f("a concurrency of " + std::to_string(claimed), claims);
  }
}

}  // namespace fovea_test
