// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// The forward pass of linear, delta-rule and FMM attention over ranks has the bits of one process.
#include "fovea/distributed/linear_forward.hpp"

#include <gtest/gtest.h>

#include "distributed/linear_problem.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/executors.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_linear_forward {

using fovea::EluPlusOne;

template <class Op, class T>
void check(const std::string& name, const Op& op, const LinearProblem<T>& whole,
           const AnyExecutor& executor = in_this_thread()) {
  op.forward(whole.inputs(op), whole.out.view(), whole.saved(op));
  const Index count = whole.q.shape()[2];
  for (const RowLayout& layout : layouts_of(count, all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    const LinearProblem<T> own(whole, rows);
    fovea::distributed::forward(op, own.inputs(op), own.out.view(), own.saved(op), rows, executor);
    const std::string what = name + ", " + std::to_string(count) + " rows";
    expect_own_part(own.out, whole.out, rows, what);
    EXPECT_EQ(own.out.changed_gaps(), 0);
    if constexpr (Op::kHasNear) {
      expect_own_part(own.near_out, whole.near_out, rows, what + ", near_out");
      expect_own_part(own.near_lse, whole.near_lse, rows, what + ", near_lse");
    }
  }
}

template <class T>
void check_all(const LinearProblem<T>& whole, const AnyExecutor& executor = in_this_thread()) {
  for_each_far_field_operator(
      [&](const std::string& name, const auto& op) { check(name, op, whole, executor); });
}

TEST(DistributedLinear, EqualsOneProcess) {
  for (const Index rows : {1, 6, 333}) check_all(LinearProblem<float>(2, 4, 2, rows));
}

TEST(DistributedLinear, EqualsOneProcessInDouble) {
  check_all(LinearProblem<OtherScalar>(1, 2, 2, 200));
}

/// Several segments, whose sums are folded in their order.
TEST(DistributedLinear, EqualsOneProcessOverSegments) {
  check_all(LinearProblem<float>(1, 2, 1, 3 * fovea::kLinearSegment + 77));
}

TEST(DistributedLinear, SupportsKeyLengths) {
  LinearProblem<float> whole(3, 2, 2, 300);
  whole.lengths = {300, 130, 0};
  check_all(whole);
}

TEST(DistributedLinear, RunsOnThreads) {
  fovea::ThreadPool pool(3);
  check_all(LinearProblem<float>(1, 8, 4, 1500), AnyExecutor::of(pool));
}

/// Causal, a state goes over each end of a range; otherwise sums and totals.
TEST(DistributedLinear, SendsStatesAndNoRows) {
  if (all_ranks().size() != 2) GTEST_SKIP() << "counted for two ranks";
  const auto sent = [](const auto& op, Index count) {
    const LinearProblem<float> whole(1, 2, 2, count);
    const Sharding rows(all_ranks(), RowLayout::contiguous(count, 2));
    const LinearProblem<float> own(whole, rows);
    return fovea::distributed::forward(op, own.inputs(op), own.out.view(), rows).bytes_sent;
  };
  const fovea::LinearAttention<EluPlusOne> causal({.causal = true});
  const bool is_first = all_ranks().rank() == 0;
  const Index state = sent(causal, 400);
  EXPECT_EQ(state > 0, is_first);
  EXPECT_EQ(sent(causal, 4000), state);
}

TEST(DistributedLinear, RefusesMismatches) {
  const LinearProblem<float> whole(1, 2, 2, 40);
  const Sharding rows(all_ranks(), RowLayout::contiguous(40, all_ranks().size()));
  const LinearProblem<float> own(whole, rows);
  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const std::string begin = "rank " + std::to_string(last) + ": ";
  const fovea::DeltaRuleAttention<EluPlusOne> op;
  auto in = own.inputs(op);
  if (is_last) in.beta = {};
  std::string text = refusal([&] { fovea::distributed::forward(op, in, own.out.view(), rows); });
  EXPECT_EQ(text.substr(0, begin.size() + 20), begin + "DeltaRuleAttention: ") << text;
  EXPECT_NE(text.find("beta"), std::string::npos) << text;
  in = own.inputs(op);
  const std::vector<Index> ends = {0, 40};
  if (is_last) in.cu_seqlens_q = ends;
  text = refusal([&] { fovea::distributed::forward(op, in, own.out.view(), rows); });
  EXPECT_EQ(text, begin +
                      "DeltaRuleAttention: cu_seqlens must not be given: the sequence is "
                      "distributed over ranks");
  const fovea::FmmOneKernel wrong({.band = {.left = -1}});
  text =
      refusal([&] { fovea::distributed::forward(wrong, own.inputs(wrong), own.out.view(), rows); });
  EXPECT_EQ(text.substr(0, 22), "rank 0: FmmAttention: ") << text;
  for (const float x : own.out.values()) EXPECT_EQ(x, 77);
}

}  // namespace fovea_test::distributed_linear_forward
