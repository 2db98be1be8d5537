// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// What layers of Sinkhorn attention over ranks refuse. (See also drawn_other_layers_test.cpp.)
#include <gtest/gtest.h>

#include "distributed/layer_call.hpp"
#include "fovea/distributed/sequence_parallel.hpp"
#include "fovea/distributed/sinkhorn.hpp"
#include "fovea/layers/learned_sorting.hpp"
#include "fovea/layers/multi_head.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"

namespace fovea_test::distributed_sequence_parallel_sinkhorn {

using fovea::SinkhornAttention;

/// The last rank has three rows, possibly those after the last complete block.
RowLayout last_three_apart(Index count) {
  std::vector<std::vector<Range>> of_ranks(as_size(all_ranks().size()));
  of_ranks.front().push_back({0, count - 3});
  of_ranks.back().push_back({count - 3, count});
  return RowLayout(of_ranks);
}

/// The message of a layer with block 7 and at most 40 blocks for a sequence.
std::string said_to(Index count, Index block = 7, Index rows_missing = 0) {
  fovea::Initialiser initialiser(3);
  fovea::MultiHead<SinkhornAttention, float> layer(
      SinkhornAttention({.block = 7}), {.width = 6, .heads = 2, .sorted_blocks = 40}, initialiser);
  layer.op().options.block = block;
  const Sharding rows(all_ranks(), last_three_apart(count));
  const bool is_first = all_ranks().rank() == 0;
  const Tensor<float> x({1, 1, rows.own_count() - (is_first ? rows_missing : 0), 6});
  x.fill(gaussian(3));
  const Tensor<float> y(x.shape());
  return refused_over(rows, [&](auto& over) { layer.forward(x.view(), y.view(), over); });
}

TEST(DistributedSinkhornLayerBadInput, IsReportedOnAllRanks) {
  EXPECT_EQ(said_to(280), "accepted");
  EXPECT_EQ(said_to(287),
            "rank 0: SinkhornAttention: x has 41 blocks; expected at most 40, the "
            "sorted_blocks of the layer");
  EXPECT_EQ(
      said_to(280, 14),
      "rank 0: SinkhornAttention: block is 14; expected 7, as when the layer was constructed");
  for (const Index count : {279, 284}) {
    const std::string text = said_to(count);
    EXPECT_EQ(text.substr(0, 32), "rank 0: SinkhornAttention: block");
    EXPECT_NE(text.find(std::to_string(count)), std::string::npos) << text;
  }
  const Index own = last_three_apart(280).count(0);
  EXPECT_EQ(said_to(280, 7, 1), "rank 0: sequence_parallel: the activations have " +
                                    std::to_string(own - 1) + " rows; expected " +
                                    std::to_string(own) + ", the rows of rank 0");
}

}  // namespace fovea_test::distributed_sequence_parallel_sinkhorn
