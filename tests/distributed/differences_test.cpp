// SPDX-License-Identifier: MIT
// fovea_test(RANKS FULL)
/// \file
/// Differences between ranks that sizes do not show, in options or layouts, are refused before
/// unexpected messages are sent.
#include <gtest/gtest.h>

#include "distributed/rank_call.hpp"
#include "fovea/attention.hpp"
#include "fovea/distributed.hpp"
#include "fovea/distributed/redistribute.hpp"

namespace fovea_test::distributed_differences {

using fovea::FullAttention;
using fovea::SparseAttention;

class DistributedDifferences : public testing::Test {
 protected:
  void SetUp() override {
    if (size == 1) GTEST_SKIP() << "nobody to differ from";
  }

  const int size = all_ranks().size();
  const bool is_first = all_ranks().rank() == 0;
  const bool is_last = all_ranks().rank() + 1 == size;
  const Index count = Index{40} * size;
  const SquareSequence sizes = square(1, 1, 1, count);
  Sharding rows{all_ranks(), RowLayout::contiguous(count, size)};
  Sharding dealt{all_ranks(), RowLayout::block_cyclic(count, size, 10)};
  const std::string differ = ": ranks differ in their row layouts or options";
};

/// Only the last rank, which has the last rows, has a different option under which it sees the same
/// keys, so messages are the same.
TEST_F(DistributedDifferences, OfTheLastRankAlone) {
  OperatorCall<FullAttention, float> call(sizes);
  const RankCall on_ranks(FullAttention{{.causal = !is_last}}, call);
  const std::string text = on_ranks.refused(on_ranks.arguments());
  EXPECT_NE(text.find("rank " + std::to_string(size - 1) + " calls FullAttention.forward"),
            std::string::npos)
      << text;
  EXPECT_NE(on_ranks.refused_backward(on_ranks.arguments()), "accepted");
  call.expect_untouched();
}

/// User patterns are identified by hashes, not by text.
TEST_F(DistributedDifferences, OfPatterns) {
  const SparseAttention causal{{.patterns = {fovea::Causal{}}}};
  const SparseAttention dense{{.patterns = {fovea::Dense{}}}};
  const SparseAttention& op = is_last ? dense : causal;
  OperatorCall<SparseAttention, float> call(sizes);
  const RankCall on_ranks(op, call);
  EXPECT_EQ(on_ranks.refused(on_ranks.arguments()), "SparseAttention" + differ);
  EXPECT_EQ(on_ranks.refused_backward(on_ranks.arguments()), "SparseAttention" + differ);
  const fovea::DecoderShape decoded = {
      .query_heads = 1, .key_heads = 1, .width = 8, .value_width = 8};
  fovea::distributed::SoftmaxDecoder<SparseAttention, float> decoder(op, decoded, all_ranks());
  const Tensor<float> x({1, 1, 40, 8}), out({1, 1, 40, 8});
  x.fill(gaussian(1));
  fovea::SoftmaxInputs<float> in;
  in.q = in.k = in.v = x.view();  // rows see others' tokens if dense
  EXPECT_EQ(refusal([&] { decoder.step(in, out.view()); }), "SparseAttention" + differ);
}

/// A slope of ALiBi is part of what is called, too.
TEST_F(DistributedDifferences, OfSlopes) {
  OperatorCall<FullAttention, float> call(sizes);
  const RankCall on_ranks(FullAttention{}, call);
  const float slope = is_first ? 0.5F : 0.25F;
  auto a = on_ranks.arguments();
  a.inputs.alibi_slopes = {&slope, 1};
  const std::string text = on_ranks.refused(a);
  EXPECT_NE(text.find(", ALiBi {0.25}, where rank 0 calls"), std::string::npos) << text;
}

TEST_F(DistributedDifferences, OfRowsOfARank) {
  using fovea::LongformerAttention;
  const auto global = [](Index tokens) {
    return LongformerAttention({.left = 4, .right = 4, .first_global = tokens});
  };
  OperatorCall<LongformerAttention, float> call(sizes);
  const RankCall on_ranks(global(2), call);
  auto a = on_ranks.arguments();
  a.inputs.global_q = a.inputs.q;
  a.inputs.global_k = a.inputs.k;
  a.inputs.global_v = a.inputs.v;
  a.saved = {};
  const std::string text = on_ranks.refused(global(is_first ? 2 : 1), a);
  EXPECT_NE(text.find("LongformerAttention.forward"), std::string::npos) << text;
  EXPECT_EQ(on_ranks.refused(a), "accepted");
}

TEST_F(DistributedDifferences, OfRows) {
  OperatorCall<FullAttention, float> call(sizes);
  const RankCall on_ranks(FullAttention{}, call);
  const auto a = on_ranks.arguments();
  const auto refused = [&](const Sharding& in) {
    return refusal([&] { fovea::distributed::forward(FullAttention{}, a.inputs, a.out, in); });
  };
  const std::string text = refused(is_first ? rows : dealt);
  EXPECT_TRUE(text.ends_with(differ)) << text;
  EXPECT_EQ(refused(dealt), "accepted");
}

TEST_F(DistributedDifferences, OfRedistributedTensors) {
  const Tensor<float> x({1, 1, 40, 8}), y({1, 1, 40, 8});
  x.fill(gaussian(1));
  const auto moved = [&](const Sharding& from, const Sharding& to) {
    return refusal(
        [&] { fovea::distributed::redistribute(View<const float>(x.view()), from, y.view(), to); });
  };
  const std::string text = moved(is_first ? rows : dealt, is_first ? dealt : rows);
  EXPECT_TRUE(text.ends_with(differ)) << text;
  const Tensor<double> wide({1, 1, 40, 8}), to({1, 1, 40, 8});
  const std::string types = refusal([&] {
    if (is_first) {
      fovea::distributed::redistribute(View<const double>(wide.view()), rows, to.view(), dealt);
    } else {
      fovea::distributed::redistribute(View<const float>(x.view()), rows, y.view(), dealt);
    }
  });
  EXPECT_NE(types.find("8 bytes per number"), std::string::npos) << types;
  EXPECT_EQ(moved(rows, dealt), "accepted");
}

}  // namespace fovea_test::distributed_differences
