// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Bias and mask over ranks beyond drawn_softmax_test.cpp: in stages the bits are those of one
/// process; what is sent; and what is refused.
#include <gtest/gtest.h>

#include "distributed/rank_call.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_forward.hpp"

namespace fovea_test::distributed_bias {

using fovea::FullAttention;

const FullAttention kCausal{{.causal = true}};

TEST(DistributedBias, EqualsOneProcessInStages) {
  expect_one_process<float>(kCausal, square(1, 1, 1, 3 * fovea::kKeySegment + 100),
                            {.bias = "k", .mask = "q"});
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
  const RankCall own(FullAttention{}, call);
  const Tensor<float> narrow({1, 1, own.own_count, 69});
  own.expect_refused([&](auto& a) { a.inputs.bias = narrow.view(); },
                     "bias has width 69; expected 1 or 70, the rows of the sequence");
  const Tensor<bool> longer({1, 1, 71, 70});
  own.expect_refused([&](auto& a) { a.inputs.mask = longer.view(); },
                     "mask has 71 rows; expected 1 or " + own.rows_of_last + ", the rows of q");
  own.expect_differs([](auto& a) { a.inputs.bias = {}; }, ", bias 1x1x70");
}

/// A gradient that is the sum over the rows of all ranks, and ranks of which one has a row for all.
TEST(DistributedBias, IsRefusedInBackwardIfItHasOneRow) {
  OperatorCall<FullAttention, float> call(square(1, 2, 2, 70), {.bias = "k", .mask = "qk"});
  const RankCall own(FullAttention{}, call);
  const Tensor<float> d_bias(call.bias.own.shape());
  own.expect_refused_backward(
      [&](auto& a) { a.grads.bias = d_bias.view(); },
      "the gradient of bias must not be given: bias has one row for all queries, and sums over "
      "distributed rows are not computed");
  const Tensor<float> other({1, 1, own.own_count, 70});
  own.expect_differs_backward(
      [&](auto& a) { a.inputs.bias = other.view(); },
      "bias has " + own.rows_of_last + " rows; expected 1, the rows of bias on another rank");
}

}  // namespace fovea_test::distributed_bias
