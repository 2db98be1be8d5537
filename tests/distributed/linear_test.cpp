// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Linear, delta-rule and FMM attention over ranks beyond drawn_linear_test.cpp: gradients without
/// values; what is sent; and what is refused.
#include <gtest/gtest.h>

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
  delta.expect_refused([](auto& a) { a.inputs.beta = {}; }, "...beta...");
  OperatorCall<fovea::FmmOneKernel, float> fmm_call(square(1, 2, 2, 40));
  const RankCall band(fovea::FmmOneKernel({.band = {.left = -1}}), fmm_call);
  const std::string text = band.refused(band.arguments());
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
  const SquareSequence s = square(1, 2, 2, 40);
  OperatorCall<fovea::FmmOneKernel, float> call(s, {.near_logits = "h"});
  OperatorCall<fovea::FmmOneKernel, float> call_by_column(s, {.near_logits = "hd"});
  const RankCall by_head(kCausalFmm, call);
  const auto by_column = RankCall(kCausalFmm, call_by_column).arguments();
  by_head.expect_differs_backward([](auto& a) { a.saved = {}; }, "near field saved");
  by_head.expect_differs_backward([](auto& a) { a.grads.near_logits = {}; }, "gradients of logits");
  by_head.expect_differs_backward(
      [&](auto& a) {
        a.inputs.near_logits = by_column.inputs.near_logits;
        a.grads.near_logits = by_column.grads.near_logits;
      },
      "gradients of logits of columns");
}

}  // namespace fovea_test::distributed_linear
