// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Linformer attention over ranks: what it sends, and refusals. (See also
/// drawn_shared_test.cpp.)
#include "fovea/distributed/linformer_backward.hpp"

#include <gtest/gtest.h>

#include "distributed/operator_calls.hpp"
#include "distributed/rank_call.hpp"

namespace fovea_test::distributed_linformer {

using fovea::kReductionBlock;
using fovea::LinformerAttention;

struct Call : LinformerCall<float> {
  explicit Call(Index rows, Index projected = 7)
      : LinformerCall<float>(SquareSequence{{1, 4, 2, rows, rows, 5, 7}}, gaussian_fills(1),
                             projected, 1, 1) {}
};

/// If ranges begin at reduction blocks, only projected keys and values are sent, from range to
/// range and then to all ranks. Rows are sent if a reduction block is on two ranks.
TEST(DistributedLinformer, SendsProjectedKeysAndNoRows) {
  const Index ranks = all_ranks().size();
  const auto sent = [&](Index count, Index multiple) {
    Call call(count, 70);
    return RankCall(LinformerAttention(), call,
                    RowLayout::contiguous(count, all_ranks().size(), multiple))
        .forward();
  };
  const Index sums = 2 * 70 * (5 + 7) * 4;
  const bool is_last = all_ranks().rank() + 1 == ranks;
  const Index expected = sums * (is_last ? ranks - 1 : 1);
  EXPECT_EQ(sent(ranks * kReductionBlock, kReductionBlock), ranks == 1 ? 0 : expected);
  EXPECT_EQ(sent(5 * ranks * kReductionBlock, kReductionBlock), ranks == 1 ? 0 : expected);
  // Rank r begins r rows after a reduction block.
  const Index row = (2 * (5 + 7) + 2 * 70) * 4;
  const Index moved = all_ranks().rank() == 0 ? 0 : kReductionBlock - all_ranks().rank();
  EXPECT_EQ(sent(ranks * (kReductionBlock + 1), 1), ranks == 1 ? 0 : expected + moved * row);
}

/// Their gradients go over the sequence once for each query head of a key head. Where blocks of
/// queries begin with ranges, no row travels.
TEST(DistributedLinformer, SendsGradientsOfProjectedKeysAndNoRows) {
  const Index ranks = all_ranks().size();
  const Index rank = all_ranks().rank();
  const auto sent = [&](Index count) {
    Call call(count, 64);
    const RankCall on_ranks(LinformerAttention(), call);
    on_ranks.forward();
    return on_ranks.backward();
  };
  const Index sums = 2 * 64 * (fovea::padded_size(5) + fovea::padded_size(7)) * 4;
  const Index expected = ranks == 1 ? 0 : sums * (rank + 1 == ranks ? 1 + ranks - 1 : 2);
  const Index block = fovea::block_rows(ranks * 64);
  EXPECT_EQ(block, 64);
  EXPECT_EQ(sent(ranks * block), expected);
  // Rank r begins r rows after a block, whose gradients are sent back.
  const Index read = rank == 0 ? 0 : (block - rank) * 4 * (5 + 7 + 7 + 1) * 4;
  const Index made = rank + 1 == ranks ? 0 : (block - rank - 1) * 4 * 5 * 4;
  EXPECT_EQ(sent(ranks * (block + 1)), expected + read + made);
}

class DistributedLinformerErrors : public testing::Test {
 protected:
  Call call{70};
  const RankCall<LinformerAttention, Call> own{LinformerAttention(), call};
};

TEST_F(DistributedLinformerErrors, InvalidArgumentsOfOneRank) {
  own.expect_refused(
      [](auto& a) { a.inputs.key_projection = {}; },
      "key_projection is required: [1, 1 or Hk, P, Nk], which projects Nk rows to P");
  const Tensor<float> all({1, 1, 7, 70});
  own.expect_differs(
      [&](auto& a) { a.inputs.value_projection = all.view(); },
      "value_projection has width 70; expected " + own.rows_of_last + ", the rows of k");
  call.keys.is_wanted = call.values.is_wanted = false;
  const Tensor<float> more({1, 1, 8, own.own_count});
  own.expect_differs(
      [&](auto& a) { a.inputs.key_projection = a.inputs.value_projection = more.view(); },
      ", key_projection 1x8, value_projection 1x8 (heads, rows), where rank 0");
}

TEST_F(DistributedLinformerErrors, MismatchedGradients) {
  own.expect_refused_backward([](auto& a) { a.saved.lse = {}; },
                              "lse is required: the lse that forward saved");
  const Tensor<float> wide({1, 1, 7, 71});
  own.expect_refused_backward([&](auto& a) { a.grads.key_projection = wide.view(); },
                              "the gradient of key_projection has shape 1x1x7x71; expected 1x1x7x" +
                                  own.rows_of_last + ", to match the inputs");
  // Whether the projected keys and values are saved is the same on all ranks.
  own.expect_differs_backward(
      [](auto& a) { a.saved.projected_keys = a.saved.projected_values = {}; },
      ", projected keys and values saved");
}

}  // namespace fovea_test::distributed_linformer
