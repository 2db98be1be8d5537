// SPDX-License-Identifier: MIT
/// \file
/// Tests of for_work of core/executor_ref.hpp.
#include <gtest/gtest.h>

#include "fovea/core/executor_ref.hpp"
#include "support/executors.hpp"
#include "support/tally.hpp"

namespace fovea_test::core_for_work {

/// The same, awake.
struct CountsAll : CountsCalls {
  static constexpr bool kTakesSmallWork = true;
};

TEST(ForWork, SmallWorkStaysOnTheCallingThread) {
  Index calls = 0;
  const auto run = [](auto&& executor, double products) {
    Tally runs(5);
    auto&& chosen = fovea::for_work(executor, [&] { return products; });
    fovea::for_each_task(chosen, 5, [&](Index task, Index) { runs.raise(task); });
    EXPECT_TRUE(runs.all(1)) << products;
    return fovea::worker_count(chosen, 5);
  };
  EXPECT_EQ(run(CountsCalls{calls}, fovea::kSerialProducts), 1);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(run(CountsCalls{calls}, fovea::kSerialProducts + 1), 2);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(run(CountsAll{{calls}}, 0), 2);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(run(fovea::Serial{}, 1e9), 1);
}

/// An executor of the calling thread, of another type than Serial.
struct Alone {
  static int concurrency() { return 1; }
  template <class F>
  void parallel_for(Index n, F&& f) const {
    fovea::Serial::parallel_for(n, f);
  }
};

/// Where no thread could be woken the work is not measured, which may take long.
TEST(ForWork, IsNotMeasuredForOneThread) {
  const Alone executor;
  bool is_asked = false;
  const auto products = [&] {
    is_asked = true;
    return 0.0;
  };
  EXPECT_EQ(fovea::for_work(executor, products).concurrency(), 1);
  EXPECT_FALSE(is_asked);
}

}  // namespace fovea_test::core_for_work
