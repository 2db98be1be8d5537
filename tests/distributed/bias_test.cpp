// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Bias and mask over ranks beyond drawn_softmax_test.cpp: under each pattern, in stages and with a
/// large lse the bits are those of one process; what is sent; and what is refused.
#include <gtest/gtest.h>

#include "distributed/operators.hpp"
#include "distributed/rank_call.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_forward.hpp"

namespace fovea_test::distributed_bias {

using fovea::FullAttention;

const FullAttention kCausal{{.causal = true}};

TEST(DistributedBias, EqualsOneProcessUnderEachPattern) {
  for_each_softmax_operator(190, [&](const auto& op) {
    expect_one_process<float>(op, square(2, 4, 2, 190), {.bias = "hqk", .mask = "bqk"});
  });
  // One bias for heads of different patterns is added to by all of them in turn.
  expect_one_process<float>(fovea::StridedAttention{{.stride = 16}}, square(2, 4, 2, 190),
                            {.bias = "qk"});
}

TEST(DistributedBias, EqualsOneProcessInStages) {
  expect_one_process<float>(kCausal, square(1, 1, 1, 3 * fovea::kKeySegment + 100),
                            {.bias = "k", .mask = "q"});
}

/// A large lse has a second number, which is found with the bias.
TEST(DistributedBias, WorksWithALargeLse) {
  OperatorCall<FullAttention, float> call(square(1, 2, 2, 190), {.bias = "hqk"});
  call.q.whole.fill(gaussian(1, 4000));
  expect_one_process(kCausal, call);
}

/// Rows that see keys of another rank are sent to it in the columns of these keys.
TEST(DistributedBias, SendsPairs) {
  if (all_ranks().size() != 2) GTEST_SKIP() << "counted for two ranks";
  const bool is_first = all_ranks().rank() == 0;
  const auto sent = [&]<class Op>(const Op& op, const Extras& extras) {
    const auto bytes = [&](const Extras& given) {
      OperatorCall<Op, float> call(square(1, 2, 1, 200), given);
      call.d_bias.is_wanted = false;
      return RankCall(op, call).backward();
    };
    return bytes(extras) - bytes({});
  };
  const fovea::LocalAttention window{{.left = 9, .right = 4}};
  EXPECT_EQ(sent(kCausal, {.bias = "hqk"}), is_first ? 0 : 2 * 100 * 100 * 4);
  EXPECT_EQ(sent(kCausal, {.mask = "qk"}), is_first ? 0 : 100 * 100);
  EXPECT_EQ(sent(kCausal, {.bias = "q", .mask = "hk"}), is_first ? 0 : 100 * 4);
  EXPECT_EQ(sent(window, {.bias = "qk"}), (is_first ? 4 * 4 : 9 * 9) * 4);
}

TEST(DistributedBias, IsRefusedIfItsShapeIsWrong) {
  OperatorCall<FullAttention, float> call(square(1, 2, 2, 70), {.bias = "qk", .mask = "qk"});
  const RankCall wrong(FullAttention{}, call);
  auto a = wrong.arguments();
  const Tensor<float> narrow({1, 1, wrong.rows().own_count(), 69});
  if (wrong.is_last) a.inputs.bias = narrow.view();
  EXPECT_EQ(wrong.refused(a),
            wrong.begin + "bias has width 69; expected 1 or 70, the rows of the sequence");
  a = wrong.arguments();
  const Index own_rows = wrong.rows().layout().count(wrong.last);
  const Tensor<bool> longer({1, 1, 71, 70});
  if (wrong.is_last) a.inputs.mask = longer.view();
  EXPECT_EQ(wrong.refused(a), wrong.begin + "mask has 71 rows; expected 1 or " +
                                  std::to_string(own_rows) + ", the rows of q");
  call.expect_untouched();
  if (wrong.last == 0) return;
  a = wrong.arguments();
  if (wrong.is_last) a.inputs.bias = {};
  const std::string text = wrong.refused(a);
  EXPECT_NE(text.find(", bias 1x1x70"), std::string::npos) << text;
}

/// A gradient that is the sum over the rows of all ranks, and ranks of which one has a row for all.
TEST(DistributedBias, IsRefusedInBackwardIfItHasOneRow) {
  OperatorCall<FullAttention, float> call(square(1, 2, 2, 70), {.bias = "k", .mask = "qk"});
  const RankCall wrong(FullAttention{}, call);
  auto a = wrong.arguments();
  const Tensor<float> d_bias(call.bias.own.shape());
  if (wrong.is_last) a.grads.bias = d_bias.view();
  EXPECT_EQ(wrong.refused_backward(a),
            wrong.begin +
                "the gradient of bias must not be given: bias has one row for all queries, and "
                "sums over distributed rows are not computed");
  if (wrong.last == 0) return;
  a = wrong.arguments();
  const Tensor<float> other({1, 1, wrong.rows().own_count(), 70});
  if (wrong.is_last) a.inputs.bias = other.view();
  EXPECT_EQ(wrong.refused_backward(a), wrong.begin + "bias has " +
                                           std::to_string(wrong.rows().layout().count(wrong.last)) +
                                           " rows; expected 1, the rows of bias on another rank");
  call.expect_untouched();
}

}  // namespace fovea_test::distributed_bias
