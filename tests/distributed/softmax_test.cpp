// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Softmax attention over patterns over ranks beyond drawn_softmax_test.cpp: long sequences have
/// the bits of one process; what is sent; and what is refused.
#include <gtest/gtest.h>

#include "distributed/rank_call.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_forward.hpp"
#include "fovea/patterns/block_window.hpp"
#include "fovea/patterns/combine.hpp"
#include "fovea/patterns/fixed.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_softmax {

using fovea::FullAttention;

const FullAttention kCausal{{.causal = true}};
const fovea::StridedAttention kMerged{{.stride = 16, .heads = fovea::HeadAssignment::merged}};

/// Keys of long sequences come in stages, at whose ends the sums of a segment are closed.
TEST(DistributedSoftmax, EqualsOneProcessInStages) {
  for (const Index rows : {4 * fovea::kKeySegment, 4 * fovea::kKeySegment + 333}) {
    SquareSequence s = square(1, 1, 1, rows);
    s.shape.width = 3;
    s.shape.value_width = 2;
    expect_one_process<float>(FullAttention{}, s);
    expect_one_process<float>(kCausal, s);
    const fovea::LocalAttention window{{.left = 4500, .right = 100}};
    expect_one_process<float>(window, s);
  }
}

/// Keys that no row of a rank sees have no effect on that rank.
TEST(DistributedSoftmax, InvisibleRowsMayContainAnything) {
  OperatorCall<fovea::StridedAttention, float> call(square(1, 2, 2, 300));
  const auto poison = std::numeric_limits<float>::quiet_NaN();
  for (Index d = 0; d < 5; ++d) call.k.whole(0, 0, 299, d) = poison;
  for (Index d = 0; d < 7; ++d) call.v.whole(0, 1, 299, d) = poison;
  // Its own row and those of its gradients are NaN.
  const fovea::StridedAttention op{{.stride = 16}};
  forward_in(Where::one_process, op, call);
  for (const RowLayout& layout : layouts_of(300, all_ranks().size())) {
    const RankCall on_ranks(op, call, layout);
    on_ranks.forward();
    on_ranks.expect(Role::made);
  }
}

/// Where rows of a block see a key in different runs, a key of a rank gets the sums of a block's
/// runs as one number, however few rows of the block the keys of the rank are seen by.
TEST(DistributedSoftmax, EqualsOneProcessIfRunsShareKeys) {
  const auto near = fovea::intersect(fovea::BlockWindow{15, 1, 1}, fovea::fixed_local(14));
  const auto beyond =
      fovea::subtract(fovea::FixedSummary{{3, 1, 0, false}}, fovea::unite(near, fovea::Causal{}));
  expect_one_process<OtherScalar>(fovea::SparseAttention({.patterns = {beyond}}),
                                  square(1, 2, 1, 600));
}

/// A row that is needed goes over once, and no other.
TEST(DistributedSoftmax, SendsWhatIsNeededOnce) {
  if (all_ranks().size() != 2) GTEST_SKIP() << "counted for two ranks";
  const auto sent = [&]<class Op>(const Op& op) {
    OperatorCall<Op, float> call(square(1, 2, 1, 200));
    return RankCall(op, call).forward();
  };
  const bool is_first = all_ranks().rank() == 0;
  constexpr Index row = (5 + 7) * 4;
  EXPECT_EQ(sent(fovea::LocalAttention{{.left = 9, .right = 4}}), (is_first ? 9 : 4) * row);
  EXPECT_EQ(sent(kCausal), (is_first ? 100 : 0) * row);
  EXPECT_EQ(sent(FullAttention{}), 100 * row);
}

class DistributedSoftmaxErrors : public testing::Test {
 protected:
  OperatorCall<FullAttention, float> call{square(1, 2, 2, 70)};
  const RankCall<FullAttention, OperatorCall<FullAttention, float>> wrong{FullAttention{}, call};
};

TEST_F(DistributedSoftmaxErrors, OneRankWithAWrongTensor) {
  const std::string more = std::to_string(wrong.rows().layout().count(wrong.last) + 1);
  const Tensor<float> longer({1, 2, wrong.own_count + 1, 5});
  wrong.expect_refused([&](auto& a) { a.inputs.k = longer.view(); },
                       "k has " + more + " rows; expected " + wrong.rows_of_last +
                           ", the rows of rank " + std::to_string(wrong.last));
  const Tensor<float> narrow({1, 2, wrong.own_count, 3}), wide({1, 2, wrong.own_count, 6});
  wrong.expect_refused([&](auto& a) { a.inputs.k = narrow.view(); }, "k has width ...");
  wrong.expect_refused([&](auto& a) { a.out = wide.view(); }, "out has shape 1x2x...");
  const std::vector<Index> lengths = {71};
  wrong.expect_refused([&](auto& a) { a.inputs.key_lengths = lengths; },
                       "key_lengths[0] is 71; expected 0 to 70, the rows of the sequence");
  EXPECT_EQ(wrong.refused(wrong.arguments()), "accepted");
}

TEST_F(DistributedSoftmaxErrors, RanksThatMakeDifferentCalls) {
  if (wrong.last == 0) GTEST_SKIP() << "one rank does one thing";
  auto a = wrong.arguments();
  std::string text = wrong.is_last ? refusal([&] {
    fovea::distributed::forward(fovea::LocalAttention{}, a.inputs, a.out, wrong.rows());
  })
                                   : wrong.refused(a);
  const std::string first =
      "rank " + std::to_string(wrong.last) + " calls LocalAttention.forward of 70 ";
  EXPECT_EQ(text.substr(0, first.size()), first);
  EXPECT_NE(text.find("where rank 0 calls FullAttention.forward"), std::string::npos) << text;
  // Tensors of another width on one rank fit each other there, and no other rank.
  const Tensor<float> wide({1, 2, wrong.own_count, 6});
  if (wrong.is_last) a.inputs.q = a.inputs.k = wide.view();
  text = wrong.refused(a);
  EXPECT_NE(text.find("q 1x2x6"), std::string::npos) << text;
  EXPECT_NE(text.find("q 1x2x5"), std::string::npos) << text;
}

/// A rank that cannot even begin does not let the others wait.
TEST_F(DistributedSoftmaxErrors, AnArenaExecutorInUse) {
  Refusing executor{wrong.is_last};
  EXPECT_EQ(wrong.refused(FullAttention{}, wrong.arguments(), executor),
            "rank " + std::to_string(wrong.last) + ": Memory: in use");
  executor.refuses = false;
  EXPECT_EQ(wrong.refused(FullAttention{}, wrong.arguments(), executor), "accepted");
}

TEST_F(DistributedSoftmaxErrors, AGradientOfNothingAndOneRanksOwnWishes) {
  const Tensor<float> bias({1, 1, 1, 70}), heads({1, 3, wrong.own_count, 5});
  wrong.expect_refused_backward([&](auto& a) { a.grads.bias = bias.view(); },
                                "the gradient of bias must not be given: the inputs have no bias");
  wrong.expect_refused_backward([&](auto& a) { a.grads.q = heads.view(); },
                                "the gradient of q has shape 1x3x...");
  OperatorCall<FullAttention, float> with_sinks(square(1, 2, 2, 70), {.sink = true});
  RankCall(FullAttention{}, with_sinks)
      .expect_differs_backward([](auto& a) { a.grads.sink = {}; }, ", gradients of sinks");
}

TEST_F(DistributedSoftmaxErrors, OtherPositionsOfRowsOnOneRank) {
  auto a = wrong.arguments();
  const std::vector<Index> lengths = {40};
  a.inputs.key_lengths = lengths;
  FullAttention op = kCausal;
  if (wrong.is_last) op.options.alignment = fovea::CausalAlignment::key_length;
  if (wrong.last > 0) {
    const std::string text = wrong.refused(op, a);
    EXPECT_NE(text.find("rows on other ranks than their keys"), std::string::npos) << text;
  }
  const std::vector<Index> positions = {0, 0};
  wrong.expect_refused([&](auto& b) { b.inputs.first_positions = positions; },
                       "the number of first_positions is 2; expected 1, the batch of q, or 0");
}

TEST_F(DistributedSoftmaxErrors, AGradientOfLseThatDoesNotFit) {
  wrong.expect_refused_backward([](auto& a) { a.d_lse = a.d_out; }, "d_lse has shape 1x2x...");
  // Of another width.
  wrong.expect_refused_backward([](auto& a) { a.d_lse = a.inputs.q; }, "d_lse has shape 1x2x...");
  wrong.expect_differs_backward([](auto& a) { a.d_lse = a.saved.lse; },
                                ", d_lse, where rank 0 calls");
  auto a = wrong.arguments();
  const View<const float> lse(a.saved.lse);
  a.d_lse = wrong.is_last ? View<const float>() : lse;
  if (wrong.last > 0) {
    EXPECT_TRUE(wrong.refused_backward(a).ends_with(", d_lse"));
  }
  call.expect_untouched();
  a.d_lse = lse;
  EXPECT_EQ(wrong.refused_backward(a), "accepted");
}

}  // namespace fovea_test::distributed_softmax
