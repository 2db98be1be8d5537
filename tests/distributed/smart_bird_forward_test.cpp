// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Smart Bird attention over ranks chooses the same keys as one process, and has its bits.
#include "fovea/distributed/smart_bird_forward.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "distributed/smart_bird_problem.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/executors.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_smart_bird_forward {

using fovea::SmartBirdAttention;
using fovea::SmartBirdInputs;

template <class T>
void check(const SmartBirdAttention& op, SmartBirdProblem<T>& whole,
           const AnyExecutor& executor = in_this_thread()) {
  op.forward(whole.inputs(), whole.out.view(), whole.saved());
  const Index count = whole.q.shape()[2];
  for (const RowLayout& layout : layouts_of(count, all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    SmartBirdProblem<T> own(whole, rows);
    fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(), rows, executor);
    const std::string what = std::to_string(count) + " rows";
    expect_own_part(own.out, whole.out, rows, what);
    expect_own_part(own.lse, whole.lse, rows, what + ", lse");
    Index at = 0;
    Index wrong = 0;
    for (const Range& range : rows.own()) {
      for (Index n = range.begin; n < range.end; ++n, ++at) {
        for (Index b = 0; b < whole.q.shape()[0]; ++b) {
          for (Index h = 0; h < whole.q.shape()[1]; ++h) {
            for (Index c = 0; c < kChosenKeys; ++c) {
              wrong += own.chosen()(b, h, at, c) != whole.chosen()(b, h, n, c) ? 1 : 0;
            }
          }
        }
      }
    }
    EXPECT_EQ(wrong, 0) << what << ", chosen keys";
  }
}

template <class T>
void check_all(SmartBirdProblem<T>& whole, const AnyExecutor& executor = in_this_thread()) {
  using fovea::SamplingPolicy;
  for (const bool causal : {false, true}) {
    check(SmartBirdAttention{{.keys_per_row = kChosenKeys, .causal = causal}}, whole, executor);
    check(
        SmartBirdAttention{
            {.keys_per_row = kChosenKeys, .policy = SamplingPolicy::top_k, .causal = causal}},
        whole, executor);
  }
}

TEST(DistributedSmartBird, EqualsOneProcess) {
  for (const Index rows : {1, 7, 333}) {
    SmartBirdProblem<float> whole(2, 4, 2, rows);
    check_all(whole);
  }
}

TEST(DistributedSmartBird, EqualsOneProcessInDouble) {
  SmartBirdProblem<OtherScalar> whole(1, 2, 2, 150);
  check_all(whole);
}

TEST(DistributedSmartBird, EqualsOneProcessOverBlocksOfKeys) {
  SmartBirdProblem<float> whole(1, 1, 1, 5000);
  check(SmartBirdAttention{{.keys_per_row = kChosenKeys,
                            .policy = fovea::SamplingPolicy::top_k,
                            .causal = true,
                            .search = fovea::SketchSearch::blocks}},
        whole);
}

TEST(DistributedSmartBird, SupportsKeyLengthsAndThreads) {
  SmartBirdProblem<float> whole(3, 2, 2, 200);
  whole.lengths = {200, 77, 0};
  fovea::ThreadPool pool(3);
  check_all(whole, AnyExecutor::of(pool));
}

/// A row whose sketch contains NaN is NaN, on the rank that has it.
TEST(DistributedSmartBird, RowsWithoutASketchAreNaN) {
  SmartBirdProblem<float> whole(2, 2, 2, 90);
  whole.sketch_q(1, 0, 61, 1) = std::numeric_limits<float>::quiet_NaN();
  check(SmartBirdAttention{{.keys_per_row = kChosenKeys, .causal = true}}, whole);
  EXPECT_TRUE(std::isnan(whole.out(1, 0, 61, 0)));
}

TEST(DistributedSmartBird, RefusesDraws) {
  SmartBirdProblem<float> whole(1, 2, 2, 40);
  const Sharding rows(all_ranks(), RowLayout::contiguous(40, all_ranks().size()));
  SmartBirdProblem<float> own(whole, rows);
  const int last = all_ranks().size() - 1;
  SmartBirdInputs<float> in = own.inputs();
  const Tensor<float> draws({1, 2, rows.own_count(), 40});
  if (all_ranks().rank() == last) in.draws = draws.view();
  const SmartBirdAttention op{{.keys_per_row = kChosenKeys}};
  EXPECT_EQ(
      refusal([&] { fovea::distributed::forward(op, in, own.out.view(), rows); }),
      "rank " + std::to_string(last) +
          ": SmartBirdAttention: draws must not be given: the sequence is distributed over ranks");
  for (const float x : own.out.values()) EXPECT_EQ(x, 77);
}

}  // namespace fovea_test::distributed_smart_bird_forward
