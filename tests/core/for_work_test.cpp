// SPDX-License-Identifier: MIT
/// \file
/// Tests of ForWork of core/executor.hpp.
#include <gtest/gtest.h>

#include <utility>

#include "fovea/attention/full.hpp"
#include "fovea/core/executor.hpp"
#include "support/tally.hpp"
#include "support/tensor.hpp"

namespace fovea_test {
namespace {

/// Counts its calls.
struct Counts {
  Index& calls;

  static int concurrency() { return 2; }
  template <class F>
  void parallel_for(Index n, F&& f) const {
    ++calls;
    for (Index i = 0; i < n; ++i) f(i);
  }
};
struct CountsAll : Counts {
  static constexpr bool kTakesSmallWork = true;
};

TEST(ForWork, SmallWorkStaysOnTheCallingThread) {
  Index calls = 0;
  const auto run = [](auto&& executor, double products) {
    Tally runs(5);
    auto&& chosen = fovea::for_work(executor, products);
    fovea::for_each_task(chosen, 5, [&](Index task, Index) { runs.raise(task); });
    EXPECT_TRUE(runs.all(1)) << products;
    return fovea::worker_count(chosen, 5);
  };
  EXPECT_EQ(run(Counts{calls}, fovea::kSerialProducts), 1);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(run(Counts{calls}, fovea::kSerialProducts + 1), 2);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(run(CountsAll{{calls}}, 0), 2);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(run(fovea::Serial{}, 1e9), 1);
}

/// Attention of few tokens takes no thread, of many it does.
TEST(ForWork, OperatorsTellHowMuchTheyDo) {
  Index calls = 0;
  const Counts executor{calls};
  const auto run = [&](Index n) {
    const Tensor<float> x({1, 2, n, 16}, {});
    const Tensor<float> out(x.shape()), lse({1, 2, n, 1}), d_q(x.shape());
    const fovea::FullAttention op;
    calls = 0;
    op.forward({x.view(), x.view(), x.view()}, out.view(), {.lse = lse.view()}, executor);
    const Index forward = calls;
    op.backward({x.view(), x.view(), x.view()}, out.view(), {.lse = lse.view()}, x.view(),
                {.q = d_q.view()}, executor);
    return std::pair(forward > 0, calls > forward);
  };
  EXPECT_EQ(run(64), std::pair(false, false));
  EXPECT_EQ(run(400), std::pair(true, true));
}

}  // namespace
}  // namespace fovea_test
