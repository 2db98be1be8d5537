// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// The forms of the Synthesizer over ranks: what they send, and refusals. (That they have the bits
/// of one process is in drawn_synthesizer_test.cpp.)
#include <gtest/gtest.h>

#include "distributed/operator_calls.hpp"
#include "distributed/rank_call.hpp"
#include "fovea/distributed/synthesizer_backward.hpp"
#include "fovea/distributed/synthesizer_forward.hpp"

namespace fovea_test::distributed_synthesizer {

using fovea::DenseSynthesizerAttention;
using fovea::FactorisedSynthesizerAttention;
using fovea::kReductionBlock;
using fovea::RandomSynthesizerAttention;

/// A sequence attends to itself, with factors of width 3 and tokens of width 3.
SquareSequence sequence(Index batch, Index heads, Index key_heads, Index rows) {
  return SquareSequence{{batch, heads, key_heads, rows, rows, 3, 5}};
}

/// What is received from other ranks: values, and the form's keys.
TEST(DistributedSynthesizerTraffic, IsOfValuesAndKeys) {
  if (all_ranks().size() != 2) GTEST_SKIP() << "counted for two ranks";
  const auto sent = [&](const auto& op, auto&& call) {
    return RankCall(op, call, RowLayout::contiguous(200, 2)).forward();
  };
  const SquareSequence s = sequence(1, 2, 1, 200);
  const Fills fills = gaussian_fills(1);
  EXPECT_EQ(sent(RandomSynthesizerAttention(), RandomCall<float>(s, fills, 1)), 100 * 5 * 4);
  EXPECT_EQ(sent(FactorisedSynthesizerAttention(), FactorisedCall<float>(s, fills, 1)),
            100 * (5 + 3) * 4);
  EXPECT_EQ(sent(DenseSynthesizerAttention(), DenseCall<float>(s, fills, 1, {.columns = 200})),
            100 * (5 + 4 + 1) * 4);
  const bool is_first = all_ranks().rank() == 0;
  EXPECT_EQ(sent(RandomSynthesizerAttention({.causal = true}), RandomCall<float>(s, fills, 1)),
            is_first ? 100 * 5 * 4 : 0);
}

TEST(DistributedSynthesizerErrors, ReportInvalidArgumentsOfOneRank) {
  RandomCall<float> call(sequence(1, 1, 1, 70), gaussian_fills(1), 1);
  const RankCall own(RandomSynthesizerAttention(), call);
  const Tensor<float> narrow({1, 1, own.own_count, 69});
  own.expect_refused([&](auto& a) { a.inputs.r = narrow.view(); },
                     "r has width 69; expected 70, the rows of the sequence");
  DenseCall<float> dense_call(sequence(1, 1, 1, 70), gaussian_fills(1), 1,
                              {.columns = 70, .has_b2 = false});
  const RankCall dense(DenseSynthesizerAttention(), dense_call);
  const Tensor<float> few({1, 1, 4, 69});
  dense.expect_refused([&](auto& a) { a.inputs.w2 = few.view(); },
                       "w2 has width 69; expected at least 70, the rows of the sequence");
}

/// Gradients of weights are sums over tokens, which ranks want together and cut at chains.
TEST(DistributedSynthesizerErrors, OfGradientsOfWeights) {
  if (all_ranks().size() == 1) GTEST_SKIP() << "nobody to differ from";
  const auto refused = [&](const RowLayout& layout, const auto& wanted) {
    DenseCall<float> call(sequence(1, 1, 1, 200), gaussian_fills(1), 1, {.columns = 200});
    const RankCall own(DenseSynthesizerAttention(), call, layout);
    auto a = own.arguments();
    wanted(a.grads);
    return own.refused_backward(a);
  };
  std::vector<std::vector<Range>> odd(as_size(all_ranks().size()));
  odd[0] = {{0, 100}};
  odd[1] = {{100, 200}};
  EXPECT_EQ(refused(RowLayout(odd), [](auto&) {}),
            "rank 1: DenseSynthesizerAttention: the first row of a range is 100; expected a "
            "multiple of 64, the reduction block of gradients of w1 and b1");
  EXPECT_EQ(refused(RowLayout(odd),
                    [](auto& grads) {
                      grads.w1 = {};
                      grads.b1 = {};
                    }),
            "accepted");
  const std::string text =
      refused(RowLayout::contiguous(200, all_ranks().size(), kReductionBlock), [](auto& grads) {
        if (all_ranks().rank() == 1) grads.w2 = {};
      });
  EXPECT_NE(text.find(", gradients of w2"), std::string::npos) << text;
}

}  // namespace fovea_test::distributed_synthesizer
