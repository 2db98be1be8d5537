// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Linformer attention over ranks: the bits of one process where keys are projected in blocks (see
/// also drawn_shared_test.cpp), what it sends, and refusals.
#include "fovea/distributed/linformer_backward.hpp"

#include <gtest/gtest.h>

#include "distributed/operator_calls.hpp"
#include "distributed/rank_call.hpp"

namespace fovea_test::distributed_linformer {

using fovea::kReductionBlock;
using fovea::LinformerAttention;

/// Sizes of a call, with what most tests want.
struct Sizes {
  Index batch = 1;
  Index query_heads = 4;
  Index key_heads = 2;
  Index rows = 333;
  Index projected = 7;
  Index value_sharing = 1;  // heads of F
  Index width = 5;
  Index value_width = 7;
};

struct Call : LinformerCall<float> {
  explicit Call(const Sizes& s)
      : LinformerCall<float>(SquareSequence{{s.batch, s.query_heads, s.key_heads, s.rows, s.rows,
                                             s.width, s.value_width}},
                             gaussian_fills(1), s.projected, 1, s.value_sharing) {}
};

void check(const LinformerAttention& op, Call&& call) {
  const Index count = call.sequence.shape.queries;
  std::vector<RowLayout> layouts = layouts_of(count, all_ranks().size());
  layouts.push_back(RowLayout::zigzag(count, all_ranks().size(), kReductionBlock));
  expect_one_process(op, call, layouts);
}

/// More projected keys than go along at once, and more chains than a product takes.
TEST(DistributedLinformer, EqualsOneProcessInBlocks) {
  check(LinformerAttention(),
        Call({.batch = 3, .rows = 1700, .projected = 150, .value_sharing = 2}));
  check(LinformerAttention({.scale = -0.3}),
        Call({.rows = 70, .projected = 200, .width = 33, .value_width = 16}));
}

/// If ranges begin at reduction blocks, only projected keys and values are sent, from range to
/// range and then to all ranks. Rows are sent if a reduction block is on two ranks.
TEST(DistributedLinformer, SendsProjectedKeysAndNoRows) {
  const Index ranks = all_ranks().size();
  const auto sent = [&](Index count, Index multiple) {
    Call call({.rows = count, .projected = 70});
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
    Call call({.rows = count, .projected = 64});
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
  Call call{{.rows = 70}};
  const RankCall<LinformerAttention, Call> own{LinformerAttention(), call};
  const std::string count = std::to_string(own.rows().layout().count(own.last));
};

TEST_F(DistributedLinformerErrors, InvalidArgumentsOfOneRank) {
  auto a = own.arguments();
  if (own.is_last) a.inputs.key_projection = {};
  EXPECT_EQ(
      own.refused(a),
      own.begin + "key_projection is required: [1, 1 or Hk, P, Nk], which projects Nk rows to P");
  a = own.arguments();
  const std::vector<Index> ends = {0, 70};
  if (own.is_last) a.inputs.cu_seqlens_q = ends;
  EXPECT_EQ(own.refused(a),
            own.begin + "cu_seqlens must not be given: the sequence is distributed over ranks");
  a = own.arguments();
  const std::vector<Index> lengths = {71};
  a.inputs.key_lengths = lengths;
  EXPECT_EQ(own.refused(a),
            "rank 0: LinformerAttention: key_lengths[0] is 71; expected 0 to 70, the rows of the "
            "sequence");
  call.expect_untouched();
  if (own.last == 0) GTEST_SKIP() << "nobody to differ from";
  a = own.arguments();
  const Tensor<float> all({1, 1, 7, 70});
  if (own.is_last) a.inputs.value_projection = all.view();
  EXPECT_EQ(own.refused(a),
            own.begin + "value_projection has width 70; expected " + count + ", the rows of k");
  a = own.arguments();
  const Tensor<float> more({1, 1, 8, own.rows().own_count()});
  if (own.is_last) a.inputs.key_projection = a.inputs.value_projection = more.view();
  a.saved = {};
  const std::string differ = own.refused(a);
  EXPECT_NE(differ.find(", key_projection 1x8, value_projection 1x8 (heads, rows), where rank 0"),
            std::string::npos)
      << differ;
  call.expect_untouched();
}

TEST_F(DistributedLinformerErrors, MismatchedGradients) {
  auto a = own.arguments();
  if (own.is_last) a.saved.lse = {};
  EXPECT_EQ(own.refused_backward(a), own.begin + "lse is required: the lse that forward saved");
  a = own.arguments();
  const Tensor<float> wide({1, 1, 7, 71});
  if (own.is_last) a.grads.key_projection = wide.view();
  EXPECT_EQ(own.refused_backward(a),
            own.begin + "the gradient of key_projection has shape 1x1x7x71; expected 1x1x7x" +
                count + ", to match the inputs");
  // Whether the projected keys and values are saved is the same on all ranks.
  if (own.last > 0) {
    a = own.arguments();
    if (own.is_last) a.saved.projected_keys = a.saved.projected_values = {};
    const std::string differ = own.refused_backward(a);
    EXPECT_NE(differ.find(", projected keys and values saved"), std::string::npos) << differ;
  }
  call.expect_untouched();
}

}  // namespace fovea_test::distributed_linformer
