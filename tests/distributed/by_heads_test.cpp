// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Reformer and Sinkhorn attention over ranks, which are computed by heads: where blocks are, what
/// is sent, and refusals. (See also drawn_by_heads_test.cpp.)
#include <gtest/gtest.h>

#include "distributed/operator_calls.hpp"
#include "distributed/rank_call.hpp"
#include "fovea/distributed/reformer.hpp"
#include "fovea/distributed/sinkhorn.hpp"

namespace fovea_test::distributed_by_heads {

using fovea::ReformerAttention;
using fovea::ReformerOptions;
using fovea::SinkhornAttention;
using fovea::distributed::blocks_of;

/// Sizes of a sequence of that many rows.
AttentionShape sizes(Index batch, Index heads, Index key_heads, Index rows) {
  return {batch, heads, key_heads, rows, rows, 5, 3};
}

/// A call with random projections.
struct OfReformer : ReformerCall<float> {
  OfReformer(const AttentionShape& shape, const ReformerOptions& options)
      : ReformerCall<float>(SquareSequence{shape}, gaussian_fills(1), options) {
    projection.role = Role::none;
  }
};

struct OfSinkhorn : SinkhornCall<float> {
  OfSinkhorn(const AttentionShape& shape, Index block)
      : SinkhornCall<float>(SquareSequence{shape}, gaussian_fills(1), block) {}
};

TEST(DistributedSinkhorn, BlocksAreWithTheirFirstRows) {
  const RowLayout rows({{{0, 5}, {12, 13}}, {{5, 12}}, {{13, 24}}, {}});
  const RowLayout blocks = blocks_of(rows, 6);
  EXPECT_EQ(blocks, RowLayout({{{0, 1}, {2, 3}}, {{1, 2}}, {{3, 4}}, {}}));
}

/// Of every tensor the rank's rows of the others' heads travel, once.
TEST(DistributedByHeads, SendsRowsOfOtherRanksHeads) {
  const Index ranks = all_ranks().size();
  const ReformerAttention op{{.chunk = 16, .rounds = 2, .buckets = 4}};
  OfReformer call(sizes(1, ranks, ranks, 16 * ranks), op.options);
  const RankCall on_ranks(op, call);
  call.lse.is_wanted = call.round_lse.is_wanted = false;
  EXPECT_EQ(on_ranks.forward(), Index{sizeof(float)} * 16 * (ranks - 1) * (5 + 2 * 3));
}

TEST(DistributedByHeads, RefusesInvalidArgumentsOfOneRank) {
  const ReformerAttention reformer{{.chunk = 12, .rounds = 2, .buckets = 4}};
  OfReformer reformer_call(sizes(1, 2, 2, 72), reformer.options);
  OfSinkhorn sinkhorn_call(sizes(1, 2, 2, 72), 12);
  const RankCall hashed(reformer, reformer_call);
  const RankCall sorted(SinkhornAttention{{.block = 12}}, sinkhorn_call);
  auto a = hashed.arguments();
  a.saved = {};
  EXPECT_EQ(hashed.refused(ReformerAttention{{.chunk = 7}}, a),
            "rank 0: ReformerAttention: chunk is 7; expected a divisor of the 72 rows of qk");
  EXPECT_EQ(sorted.refused(SinkhornAttention{{.block = 7}}, sorted.arguments()),
            "rank 0: SinkhornAttention: block is 7; expected a divisor of the 72 rows of q");
  const Index blocks = blocks_of(sorted.rows().layout(), 12).count(sorted.last);
  const Tensor<float> many({1, 2, sinkhorn_call.sorting.own.shape()[2] + 1, 6});
  sorted.expect_refused([&](auto& b) { b.inputs.sorting = many.view(); },
                        "sorting has " + std::to_string(blocks + 1) + " row...; expected " +
                            std::to_string(blocks) + ", the blocks of q");
  hashed.expect_differs([](auto& b) { b.saved.lse = {}; }, ", lse");
}

}  // namespace fovea_test::distributed_by_heads
