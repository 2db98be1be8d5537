// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Softmax attention over patterns over ranks beyond drawn_softmax_test.cpp: long sequences and
/// large lse have the bits of one process; what is sent; and what is refused.
#include <gtest/gtest.h>

#include "distributed/operators.hpp"
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

/// Of sinks every rank gets the gradients of the whole sequence.
TEST(DistributedSoftmax, SinksEqualOneProcessIfLogitsAreLarge) {
  OperatorCall<fovea::StridedAttention, float> large(square(1, 4, 4, 333), {.sink = true});
  large.q.whole.fill(gaussian(1, 4000));
  expect_one_process(kMerged, large);
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

/// The gradient with respect to lse travels with the rows of queries.
TEST(DistributedSoftmax, EqualsOneProcessThroughLse) {
  for (const Index rows : {6, 333}) {
    for_each_softmax_operator(rows, [&]<class Op>(const Op& op) {
      OperatorCall<Op, float> call(square(2, 4, 2, rows), {.sink = true});
      call.d_lse.role = Role::read;
      expect_one_process(op, call);
    });
  }
  OperatorCall<FullAttention, float> call(square(1, 2, 2, 333));
  call.d_lse.role = Role::read;
  call.q.whole.fill(gaussian(1, 4000));
  expect_one_process(kCausal, call);
  call.d_out.whole.fill(constant(0));
  expect_one_process(kCausal, call);
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

/// With a large lse a second number of each row travels, which is found with the keys of its rank.
TEST(DistributedSoftmax, EqualsOneProcessIfLseIsLarge) {
  const auto check = [&]<class Op>(const Op& op) {
    OperatorCall<Op, float> call(square(1, 2, 2, 333));
    call.q.whole.fill(gaussian(1, 4000));
    expect_one_process(op, call);
    EXPECT_GT(large_count(call.lse), 100);
  };
  check(kCausal);
  check(kMerged);
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
  const Index own = wrong.rows().layout().count(wrong.last);
};

TEST_F(DistributedSoftmaxErrors, OneRankWithAWrongTensor) {
  auto a = wrong.arguments();
  const Tensor<float> longer({1, 2, own + 1, 5});
  if (wrong.is_last) a.inputs.k = longer.view();
  EXPECT_EQ(wrong.refused(a), wrong.begin + "k has " + std::to_string(own + 1) +
                                  " rows; expected " + std::to_string(own) + ", the rows of rank " +
                                  std::to_string(wrong.last));
  const Tensor<float> narrow({1, 2, own, 3});
  if (wrong.is_last) a.inputs.k = narrow.view();
  std::string text = wrong.refused(a);
  EXPECT_TRUE(text.starts_with(wrong.begin + "k has width ")) << text;
  a = wrong.arguments();
  const Tensor<float> none({1, 2, own, 6});
  if (wrong.is_last) a.out = none.view();
  text = wrong.refused(a);
  EXPECT_TRUE(text.starts_with(wrong.begin + "out has shape 1x2x")) << text;
  call.expect_untouched();
  EXPECT_EQ(wrong.refused(wrong.arguments()), "accepted");
}

TEST_F(DistributedSoftmaxErrors, ALengthBeyondTheSequence) {
  auto a = wrong.arguments();
  const std::vector<Index> lengths = {71};
  if (wrong.is_last) a.inputs.key_lengths = lengths;
  EXPECT_EQ(wrong.refused(a),
            wrong.begin + "key_lengths[0] is 71; expected 0 to 70, the rows of the sequence");
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
  const Tensor<float> wide({1, 2, own, 6});
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
  auto a = wrong.arguments();
  const Tensor<float> bias({1, 1, 1, 70});
  if (wrong.is_last) a.grads.bias = bias.view();
  EXPECT_EQ(wrong.refused_backward(a),
            wrong.begin + "the gradient of bias must not be given: the inputs have no bias");
  if (wrong.last > 0) {
    a = wrong.arguments();
    const std::vector<float> sinks(2);
    std::vector<float> d_sinks(2);
    a.inputs.sink = sinks;
    if (wrong.is_last) a.grads.sink = d_sinks;
    const std::string text = wrong.refused_backward(a);
    EXPECT_NE(text.find(", gradients of sinks"), std::string::npos) << text;
  }
  a = wrong.arguments();
  const Tensor<float> heads({1, 3, own, 5});
  if (wrong.is_last) a.grads.q = heads.view();
  const std::string text = wrong.refused_backward(a);
  EXPECT_TRUE(text.starts_with(wrong.begin + "the gradient of q has shape 1x3x")) << text;
  call.expect_untouched();
}

TEST_F(DistributedSoftmaxErrors, AGradientOfLseThatDoesNotFit) {
  const auto refused = [&](const View<const float>& of_last, const View<const float>& of_others) {
    auto a = wrong.arguments();
    a.d_lse = wrong.is_last ? of_last : of_others;
    return wrong.refused_backward(a);
  };
  const auto a = wrong.arguments();
  const View<const float> right(a.saved.lse);
  std::string text = refused(a.d_out, right);
  EXPECT_TRUE(text.starts_with(wrong.begin + "d_lse has shape 1x2x")) << text;
  if (wrong.last > 0) {
    text = refused(right, {});
    EXPECT_NE(text.find(", d_lse, where rank 0 calls"), std::string::npos) << text;
    text = refused({}, right);
    EXPECT_TRUE(text.ends_with(", d_lse")) << text;
  }
  text = refused(a.inputs.q, right);  // of another width
  EXPECT_TRUE(text.starts_with(wrong.begin + "d_lse has shape 1x2x")) << text;
  call.expect_untouched();
  EXPECT_EQ(refused(right, right), "accepted");
}

}  // namespace fovea_test::distributed_softmax
