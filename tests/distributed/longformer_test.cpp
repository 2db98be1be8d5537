// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Longformer attention over ranks with projections of global rows: long sequences (see also
/// drawn_softmax_test.cpp), refusals, and a thread that throws.
#include "fovea/distributed/longformer.hpp"

#include <gtest/gtest.h>

#include "distributed/rank_call.hpp"
#include "fovea/core/thread_pool.hpp"

namespace fovea_test::distributed_longformer {

using fovea::LongformerAttention;

/// A call with projections of global rows.
struct Call : OperatorCall<LongformerAttention, float> {
  explicit Call(const SquareSequence& s) : OperatorCall<LongformerAttention, float>(s) {
    add_global_rows(*this);
  }
};

/// The keys of global rows come in stages where there are many.
TEST(DistributedLongformer, EqualsOneProcessInStages) {
  const fovea::ThreadPool pool(2);
  expect_one_process(LongformerAttention{{.left = 9, .right = 5, .global = {0, 5000}}},
                     Call(square(1, 1, 1, 4 * fovea::kKeySegment + 100)), AnyExecutor::of(pool));
}

TEST(DistributedLongformer, RefusesInvalidArgumentsOfOneRank) {
  Call call(square(1, 2, 2, 70));
  const RankCall own(LongformerAttention(), call);
  const auto with_global = [](Index token) { return LongformerAttention{{.global = {token}}}; };
  const Tensor<float> wide({1, 2, own.own_count, 6});
  own.expect_refused([&](auto& a) { a.inputs.global_k = wide.view(); },
                     "global_k has shape 1x2x...");
  own.expect_refused([](auto& a) { a.inputs.global_q = {}; },
                     "global_q is required: global_q, global_k and global_v belong together");
  own.expect_differs(
      [](auto& a) { a.inputs.global_q = a.inputs.global_k = a.inputs.global_v = {}; },
      ", projections of global rows");
  EXPECT_EQ(own.refused(with_global(70), own.arguments()),
            "rank 0: LongformerAttention: the last global token is 70; expected less than 70, the "
            "number of keys");
  EXPECT_EQ(own.refused(with_global(69), own.arguments()), "accepted");
}

/// A rank whose threads break in the first pass still sends what others need in the second.
TEST(DistributedLongformer, AnExceptionInATask) {
  Call call(square(1, 8, 2, 3000));
  const LongformerAttention op{{.left = 9, .right = 5, .first_global = 1}};
  const RankCall own(op, call, RowLayout::zigzag(3000, all_ranks().size()));
  const Breaking executor{own.is_last};
  EXPECT_EQ(said_together([&] { own.forward(executor); }),
            "rank " + std::to_string(own.last) + ": the thread broke");
}

}  // namespace fovea_test::distributed_longformer
