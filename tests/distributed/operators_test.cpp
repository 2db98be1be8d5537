// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// What every operator whose rows are distributed refuses, and what it does if a thread throws.
/// (That it has the bits of one process is in the drawn tests.)
#include <gtest/gtest.h>

#include "distributed/rank_call.hpp"
#include "distributed/score_modifier.hpp"
#include "fovea/attention.hpp"
#include "fovea/distributed.hpp"

namespace fovea_test::distributed_operators {

/// Calls test(op) for an operator of every family, for a sequence of that many rows; of some for
/// several, which take other paths.
template <class F>
void for_each_operator(Index rows, const F& test) {
  using namespace fovea;
  const FullAttention causal{{.causal = true}};
  test(causal);
  test(ModifiedAttention(causal, NearerIsMore{}));
  test(StridedAttention{{.stride = 16, .heads = HeadAssignment::merged}});
  test(FatAttention{});
  test(LinearAttention<EluPlusOne>());
  test(LinearAttention<EluPlusOne>({.causal = true}));
  test(DeltaRuleAttention<EluPlusOne>());
  test(FmmOneKernel({.band = Band::half_width(5)}));
  test(FmmTwoKernelsFastWeight({.band = {.left = 9}, .causal = true}));
  test(PerformerAttention());
  test(PerformerAttention({.causal = true}));
  test(IndexedAttention{});
  test(SmartBirdAttention({.keys_per_row = OtherSizes{}.listed, .causal = true}));
  test(FsatAttention(FsatOptions{.max_length = rows}));
}

TEST(DistributedOperators, RefusePackedSequences) {
  const std::vector<Index> ends = {0, 40};
  for_each_operator(40, [&]<class Op>(const Op& op) {
    OperatorCall<Op, float> call(square(1, 2, 2, 40));
    RankCall(op, call).expect_refused(
        [&](auto& a) { a.inputs.cu_seqlens_q = ends; },
        "cu_seqlens must not be given: the sequence is distributed over ranks");
  });
}

/// (That the text of options has all of them is in options_text_test.cpp.)
TEST(DistributedOperators, RefuseDifferentOptions) {
  for_each_operator(40, []<class Op>(const Op& op) {
    OperatorCall<Op, float> call(square(1, 2, 2, 40));
    expect_options_compared(op, call);
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
