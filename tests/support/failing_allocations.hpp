// SPDX-License-Identifier: MIT
/// \file
/// Helpers for tests with failing allocations.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <new>
#include <vector>

#include "fovea/core/thread_pool.hpp"
#include "support/between_fences.hpp"
#include "support/compare.hpp"
#include "support/executors.hpp"
#include "support/fill.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

/// The contents of outputs before a call.
inline constexpr double kUntouched = 7;

/// Counts the allocations that failed, and prints their number at the end.
class FailedAllocations : public testing::Environment {
 public:
  static std::ptrdiff_t& count() {
    static std::ptrdiff_t failed = 0;
    return failed;
  }
  void TearDown() override { std::printf("allocations that failed: %td\n", count()); }
};
inline testing::Environment* const failed_allocations =
    testing::AddGlobalTestEnvironment(new FailedAllocations);

/// Fails the n-th allocation of `call`, n = 1, 2, ... until none fails; beyond the first hundred,
/// which a case that makes lists of keys for every row needs, not quite all.
/// \param reset before each call   \param failed after one that threw   \param done after others
inline void fail_each_allocation(const std::function<void()>& reset,
                                 const std::function<void()>& call,
                                 const std::function<void()>& failed,
                                 const std::function<void()>& done) {
  for (const bool forever : {false, true}) {
    bool struck = true;
    for (std::ptrdiff_t n = 1; struck; n += 1 + n / 100) {
      ASSERT_LE(n, 100'000) << "it does not end";
      reset();
      bool threw = false;
      {
        const FailingHeap failing(n, forever);
        try {
          call();
        } catch (const std::bad_alloc&) {
          threw = true;
        }
        struck = FailingHeap::has_struck();
        if (struck) ++FailedAllocations::count();
      }
      ASSERT_TRUE(struck || !threw);
      threw ? failed() : done();
      if (testing::Test::HasFailure()) FAIL() << "allocation " << n << (forever ? " and on" : "");
    }
  }
}

/// Runs `property(executor)` without an executor and with a pool of three threads; afterwards as
/// much memory is in use as before.
template <class Property>
void serial_and_in_a_pool(Property&& property) {
  const auto kept = [&](auto&& run) {
    run();  // what is made once and stays
    const std::ptrdiff_t before = heap().bytes;
    run();
    return heap().bytes - before;
  };
  EXPECT_EQ(kept([&] { property(nullptr); }), 0) << "leaked";
  EXPECT_EQ(kept([&] {
              fovea::ThreadPool pool(3);
              AnyExecutor executor = AnyExecutor::of(pool);
              property(&executor);
            }),
            0)
      << "leaked, with threads";
}

template <class T>
bool is_untouched(const std::vector<T>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](T x) { return x == static_cast<T>(kUntouched); });
}

/// Checks that a pass writes all of its tensors or none, whichever allocation fails, stays within
/// its memory, and does not depend on its initial contents.
/// \param pass pass(executor), where the executor may be null, writes the tensors `written`
template <class T, class Pass>
void expect_all_or_nothing(const std::vector<const Tensor<T>*>& written, Pass&& pass) {
  pass(nullptr);
  std::vector<std::vector<T>> expected;
  for (const Tensor<T>* x : written) expected.push_back(x->values());
  const auto expect_all = [&] {
    for (std::size_t n = 0; n < written.size(); ++n) {
      EXPECT_TRUE(same_bits(written[n]->values(), expected[n])) << "tensor " << n;
    }
  };
  between_fences([&] {
    for (const Tensor<T>* x : written) x->fill(constant(kUntouched));
    pass(nullptr);
    expect_all();
  });
  serial_and_in_a_pool([&](AnyExecutor* executor) {
    fail_each_allocation(
        [&] {
          for (const Tensor<T>* x : written) x->fill(constant(kUntouched));
        },
        [&] { pass(executor); },
        [&] {
          for (const Tensor<T>* x : written) EXPECT_TRUE(is_untouched(x->values()));
        },
        expect_all);
  });
}

}  // namespace fovea_test
