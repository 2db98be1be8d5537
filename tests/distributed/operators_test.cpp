// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// What every operator whose rows are distributed has in common: both passes have the bits of one
/// process, write only requested gradients, and fail together.
#include <gtest/gtest.h>

#include <limits>

#include "distributed/operators.hpp"
#include "distributed/rank_call.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_operators {

TEST(DistributedOperators, EqualOneProcess) {
  for (const Index rows : {1, 6, 333}) {
    for_each_operator(
        rows, [&](const auto& op) { expect_one_process<float>(op, square(2, 4, 2, rows)); });
  }
}

TEST(DistributedOperators, EqualOneProcessInDouble) {
  for_each_operator(
      700, [&](const auto& op) { expect_one_process<OtherScalar>(op, square(1, 2, 2, 700)); });
}

/// Keys from a length on may contain anything, and so may their dominant indices.
TEST(DistributedOperators, SupportKeyLengthsAndThreads) {
  const fovea::ThreadPool pool(3);
  const AnyExecutor executor = AnyExecutor::of(pool);
  for_each_operator(300, [&]<class Op>(const Op& op) {
    OperatorCall<Op, float> call(square(3, 2, 2, 300, {300, 131, 0}));
    if (call.dominant.role == Role::read) {
      for (Index n = 131; n < 300; ++n) {
        call.dominant.whole(1, 1, n, 0) = std::numeric_limits<float>::quiet_NaN();
      }
    }
    expect_one_process(op, call, executor);
  });
}

/// Ranks may want different gradients.
TEST(DistributedOperators, WriteRequestedGradients) {
  const bool is_even = all_ranks().rank() % 2 == 0;
  for_each_operator(150, [&]<class Op>(const Op& op) {
    for (const bool wants_k : {false, true}) {
      OperatorCall<Op, float> call(square(1, 2, 2, 150));
      call.d_q.is_wanted = !is_even;
      call.d_k.is_wanted = wants_k;
      call.d_v.is_wanted = is_even;
      call.d_beta.is_wanted = call.d_dominant.is_wanted = !is_even;
      call.d_projection.is_wanted = wants_k;
      expect_one_process(op, call);
    }
  });
}

TEST(DistributedOperators, RefusePackedSequences) {
  const std::vector<Index> ends = {0, 40};
  for_each_operator(40, [&]<class Op>(const Op& op) {
    OperatorCall<Op, float> call(square(1, 2, 2, 40));
    const RankCall wrong(op, call);
    auto a = wrong.arguments();
    if (wrong.is_last) a.inputs.cu_seqlens_q = ends;
    EXPECT_EQ(wrong.refused(a),
              wrong.begin + "cu_seqlens must not be given: the sequence is distributed over ranks");
    call.expect_untouched();
  });
}

/// A rank whose threads break still sends what others need, and all throw the same.
TEST(DistributedOperators, AnExceptionInATask) {
  // Each rank has a segment of linear attention.
  const Index count = fovea::kLinearSegment * all_ranks().size();
  const int last = all_ranks().size() - 1;
  Breaking breaking{all_ranks().rank() == last};
  const AnyExecutor executor = AnyExecutor::of(breaking);
  for_each_operator(count, [&]<class Op>(const Op& op) {
    OperatorCall<Op, float> call(square(1, 2, 2, count));
    forward_in(Where::one_process, op, call);
    const RankCall on_ranks(op, call);
    const std::string broke = "rank " + std::to_string(last) + ": the thread broke";
    EXPECT_EQ(said_together([&] { on_ranks.forward(executor); }), broke);
    on_ranks.forward();
    EXPECT_EQ(said_together([&] { on_ranks.backward(executor); }), broke);
  });
}

}  // namespace fovea_test::distributed_operators
