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
  auto b = sorted.arguments();
  a.saved = {};
  EXPECT_EQ(hashed.refused(ReformerAttention{{.chunk = 7}}, a),
            "rank 0: ReformerAttention: chunk is 7; expected a divisor of the 72 rows of qk");
  EXPECT_EQ(sorted.refused(SinkhornAttention{{.block = 7}}, b),
            "rank 0: SinkhornAttention: block is 7; expected a divisor of the 72 rows of q");
  const std::vector<Index> lengths = {73};
  if (hashed.is_last) a.inputs.key_lengths = lengths;
  EXPECT_EQ(hashed.refused(a),
            hashed.begin + "key_lengths[0] is 73; expected 0 to 72, the rows of the sequence");
  a = hashed.arguments();
  const Tensor<float> wide({1, 2, hashed.rows().own_count() + 1, 3});
  if (hashed.is_last) a.inputs.v = wide.view();
  const Index count = hashed.rows().layout().count(hashed.last);
  const std::string of_rows = hashed.refused(a);
  EXPECT_TRUE(of_rows.starts_with(hashed.begin + "v has " + std::to_string(count + 1) + " rows;"))
      << of_rows;
  const Index blocks = blocks_of(sorted.rows().layout(), 12).count(sorted.last);
  const Tensor<float> many({1, 2, b.inputs.sorting.rows() + 1, 6});
  if (sorted.is_last) b.inputs.sorting = many.view();
  EXPECT_EQ(sorted.refused(b), sorted.begin + "sorting has " + std::to_string(blocks + 1) +
                                   (blocks == 0 ? " row; expected " : " rows; expected ") +
                                   std::to_string(blocks) + ", the blocks of q");
  if (hashed.last > 0) {
    a = hashed.arguments();
    if (hashed.is_last) a.saved.lse = {};
    const std::string differ = hashed.refused(a);
    EXPECT_NE(differ.find(", lse"), std::string::npos) << differ;
  }
  reformer_call.expect_untouched();
  sinkhorn_call.expect_untouched();
}

}  // namespace fovea_test::distributed_by_heads
