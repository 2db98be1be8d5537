// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Linear, delta-rule and FMM attention over ranks beyond drawn_linear_test.cpp: several segments,
/// key lengths and no values have the bits of one process; what is sent; and what is refused.
#include <gtest/gtest.h>

#include "distributed/operators.hpp"
#include "distributed/rank_call.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed/linear_backward.hpp"
#include "fovea/distributed/linear_forward.hpp"
#include "fovea/distributed/performer_backward.hpp"
#include "fovea/distributed/performer_forward.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_linear {

using fovea::EluPlusOne;
using fovea::kLinearSegment;

const fovea::FmmOneKernel kCausalFmm({.band = {.left = 6}, .causal = true});

/// Several segments: states go over them, and sums are folded in their order.
TEST(DistributedLinear, EqualsOneProcessOverSegments) {
  const fovea::ThreadPool pool(3);
  for_each_far_field_operator([&](const auto& op) {
    expect_one_process<float>(op, square(1, 4, 2, 5 * kLinearSegment + 77), {},
                              AnyExecutor::of(pool));
  });
}

/// Rows after the last key read the last chunk of keys token by token, on any rank.
TEST(DistributedLinear, SupportsKeyLengths) {
  const Index count = 3 * kLinearSegment + 5;
  for_each_far_field_operator([&](const auto& op) {
    expect_one_process<float>(
        op, square(4, 2, 1, count, {count, kLinearSegment + 130, 0, 2 * kLinearSegment}));
  });
}

/// Without values there is no output, so that denominators of exactly 0 reach no gradient.
TEST(DistributedLinear, NoValuesGiveNoGradients) {
  using fovea::Relu;
  const auto expect_zero = [&]<class Op>(const Op& op) {
    SquareSequence s = square(1, 2, 1, kLinearSegment + 77);
    s.shape.value_width = 0;
    OperatorCall<Op, float> call(s, {constant(-1), constant(-1), constant(0)});
    expect_one_process(op, call);
    for (const float gradient : call.d_q.whole.values()) ASSERT_EQ(gradient, 0);
    for (const float gradient : call.d_k.whole.values()) ASSERT_EQ(gradient, 0);
  };
  for (const bool causal : {false, true}) {
    expect_zero(fovea::LinearAttention<Relu>({.causal = causal}));
    expect_zero(fovea::FmmAttention<Relu>({.band = {.left = 9}, .causal = causal}));
  }
  expect_zero(fovea::DeltaRuleAttention<Relu>());
}

/// Of no sequences at all the gradients of a blend's logits are 0.
TEST(DistributedLinear, LogitsWithoutSequences) {
  for (const bool causal : {false, true}) {
    const fovea::FmmOneKernel op({.band = {.left = 6}, .causal = causal});
    OperatorCall<fovea::FmmOneKernel, OtherScalar> call(square(0, 2, 2, 100),
                                                        {.near_logits = "h", .far_logits = "h"});
    expect_one_process(op, call);
    for (const double x : call.d_near_logits.own.values()) EXPECT_EQ(x, 0);
    for (const double x : call.d_far_logits.own.values()) EXPECT_EQ(x, 0);
  }
}

/// Causal, a state goes over each end of a range. In the backward pass ranges that end with
/// segments send states and sums, and no row.
TEST(DistributedLinear, SendsStatesAndNoRows) {
  if (all_ranks().size() != 2) GTEST_SKIP() << "counted for two ranks";
  const auto sent = []<class Op>(bool in_backward, const Op& op, Index count) {
    OperatorCall<Op, float> call(square(1, 2, 2, count));
    const RankCall on_ranks(op, call);
    return in_backward ? on_ranks.backward() : on_ranks.forward();
  };
  const fovea::LinearAttention<EluPlusOne> causal({.causal = true});
  EXPECT_EQ(sent(false, causal, 400) > 0, all_ranks().rank() == 0);
  EXPECT_EQ(sent(false, causal, 4000), sent(false, causal, 400));
  const Index state = sent(true, causal, 2 * kLinearSegment);
  EXPECT_GT(state, 0);
  EXPECT_EQ(sent(true, causal, 8 * kLinearSegment), state);
  EXPECT_GT(sent(true, causal, 2 * kLinearSegment + 100), state);
  const fovea::DeltaRuleAttention<EluPlusOne> delta;
  EXPECT_EQ(sent(true, delta, 8 * kLinearSegment), sent(true, delta, 2 * kLinearSegment));
}

TEST(DistributedLinear, RefusesMismatches) {
  OperatorCall<fovea::DeltaRuleAttention<EluPlusOne>, float> call(square(1, 2, 2, 40));
  const RankCall delta(fovea::DeltaRuleAttention<EluPlusOne>(), call);
  auto a = delta.arguments();
  if (delta.is_last) a.inputs.beta = {};
  std::string text = delta.refused(a);
  EXPECT_TRUE(text.starts_with(delta.begin)) << text;
  EXPECT_NE(text.find("beta"), std::string::npos) << text;
  call.expect_untouched();
  OperatorCall<fovea::FmmOneKernel, float> fmm_call(square(1, 2, 2, 40));
  const RankCall band(fovea::FmmOneKernel({.band = {.left = -1}}), fmm_call);
  text = band.refused(band.arguments());
  EXPECT_TRUE(text.starts_with("rank 0: FmmAttention: ")) << text;
  fmm_call.expect_untouched();
}

TEST(DistributedLinear, RefusesDifferentOptions) {
  if (all_ranks().size() == 1) GTEST_SKIP() << "nobody to differ from";
  const SquareSequence s = square(1, 2, 2, 40);
  using Linear = fovea::LinearAttention<EluPlusOne>;
  expect_refused_together(Linear({.causal = true}), Linear(), s,
                          "elu(x) + 1, options {true, 0, {0, 0}, 0}");
  expect_refused_together(Linear(), Linear({.causal = true}), s, "elu(x) + 1");
  using Fmm = fovea::FmmOneKernel;
  expect_refused_together(Fmm({.band = {30, 2}}), Fmm({.band = {3, 2}}), s,
                          "elu(x) + 1, options {{30, 2}, false, {}, 0, false, {0, 0}, 0}");
}

/// Whether the near field is saved is the same on all ranks, and so are the gradients of logits.
TEST(DistributedLinear, RefusesDifferentGradientsOfLogits) {
  if (all_ranks().size() == 1) GTEST_SKIP() << "nobody to differ from";
  const SquareSequence s = square(1, 2, 2, 40);
  OperatorCall<fovea::FmmOneKernel, float> call(s, {.near_logits = "h"});
  OperatorCall<fovea::FmmOneKernel, float> call_by_column(s, {.near_logits = "hd"});
  const RankCall by_head(kCausalFmm, call);
  const RankCall by_column(kCausalFmm, call_by_column);
  const auto expect_differs = [&](const auto& arguments, const std::string& difference) {
    const std::string text = by_head.refused_backward(arguments);
    EXPECT_NE(text.find(difference), std::string::npos) << text;
  };
  auto a = by_head.arguments();
  if (by_head.is_last) a.saved = {};
  expect_differs(a, "near field saved");
  a = by_head.arguments();
  if (!by_head.is_last) a.grads.near_logits = {};
  expect_differs(a, "gradients of logits");
  a = by_head.arguments();
  if (by_head.is_last) {
    a.inputs.near_logits = by_column.arguments().inputs.near_logits;
    a.grads.near_logits = by_column.arguments().grads.near_logits;
  }
  expect_differs(a, "gradients of logits of columns");
  call.expect_untouched();
}

}  // namespace fovea_test::distributed_linear
