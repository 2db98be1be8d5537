// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// What every operator whose rows are distributed has in common: both passes have the bits of one
/// process, write only requested gradients, and fail together.
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "distributed/operator_call.hpp"
#include "distributed/operators.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_operators {

TEST(DistributedOperators, EqualOneProcess) {
  for (const Index rows : {1, 6, 333}) {
    for_each_operator(rows, [&](const std::string& name, const auto& op) {
      expect_bits_of_one_process<float>(name, op, square(2, 4, 2, rows));
    });
  }
}

TEST(DistributedOperators, EqualOneProcessInDouble) {
  for_each_operator(700, [&](const std::string& name, const auto& op) {
    expect_bits_of_one_process<OtherScalar>(name, op, square(1, 2, 2, 700));
  });
}

/// Keys from a length on may contain anything, and so may their dominant indices.
TEST(DistributedOperators, SupportKeyLengthsAndThreads) {
  const fovea::ThreadPool pool(3);
  const AnyExecutor executor = AnyExecutor::of(pool);
  for_each_operator(300, [&]<class Op>(const std::string& name, const Op& op) {
    OperatorCall<Op, float> call(square(3, 2, 2, 300, {300, 131, 0}));
    if (call.dominant.role == Role::read) {
      for (Index n = 131; n < 300; ++n) {
        call.dominant.whole(1, 1, n, 0) = std::numeric_limits<float>::quiet_NaN();
      }
    }
    expect_bits_of_one_process(name, op, call, executor);
  });
}

/// Ranks may want different gradients.
TEST(DistributedOperators, WriteRequestedGradients) {
  const bool is_even = all_ranks().rank() % 2 == 0;
  for_each_operator(150, [&]<class Op>(const std::string& name, const Op& op) {
    for (const bool wants_k : {false, true}) {
      OperatorCall<Op, float> call(square(1, 2, 2, 150));
      call.d_q.is_wanted = !is_even;
      call.d_k.is_wanted = wants_k;
      call.d_v.is_wanted = is_even;
      call.d_beta.is_wanted = call.d_dominant.is_wanted = !is_even;
      call.d_projection.is_wanted = wants_k;
      expect_bits_of_one_process(name, op, call);
    }
  });
}

TEST(DistributedOperators, RefusePackedSequences) {
  const int last = all_ranks().size() - 1;
  const Sharding rows(all_ranks(), RowLayout::contiguous(40, all_ranks().size()));
  const std::vector<Index> ends = {0, 40};
  for_each_operator(40, [&]<class Op>(const std::string& name, const Op& op) {
    OperatorCall<Op, float> call(square(1, 2, 2, 40));
    call.shard(rows);
    auto in = call.inputs(Where::ranks);
    if (all_ranks().rank() == last) in.cu_seqlens_q = ends;
    EXPECT_EQ(
        refusal([&] { fovea::distributed::forward(op, in, call.out.in(Where::ranks), rows); }),
        "rank " + std::to_string(last) + ": " + Op::name() +
            ": cu_seqlens must not be given: the sequence is distributed over ranks")
        << name;
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
  const Sharding rows(all_ranks(), RowLayout::contiguous(count, all_ranks().size()));
  for_each_operator(count, [&]<class Op>(const std::string& name, const Op& op) {
    OperatorCall<Op, float> call(square(1, 2, 2, count));
    forward_in(Where::one_process, op, call);
    call.shard(rows);
    for (const bool in_backward : {false, true}) {
      SCOPED_TRACE(name + (in_backward ? ", backward" : ", forward"));
      const std::string said = said_together([&] {
        in_backward ? backward_in(Where::ranks, op, call, rows, executor)
                    : forward_in(Where::ranks, op, call, rows, executor);
      });
      EXPECT_EQ(said, "rank " + std::to_string(last) + ": the thread broke");
      if (!in_backward) forward_in(Where::ranks, op, call, rows);
    }
  });
}

}  // namespace fovea_test::distributed_operators
