// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Layers of Sinkhorn attention over ranks: the tokens of a block, whose sum makes its sorting
/// logits, may be on several ranks, and the bits are those of one process. (For lengths, threads
/// and other layouts see drawn_other_layers_test.cpp.)
#include <gtest/gtest.h>

#include "distributed/layer_call.hpp"
#include "fovea/distributed/sequence_parallel.hpp"
#include "fovea/distributed/sinkhorn.hpp"
#include "fovea/layers/learned_sorting.hpp"
#include "fovea/layers/multi_head.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_sequence_parallel_sinkhorn {

using fovea::Initialiser;
using fovea::kReductionBlock;
using fovea::SinkhornAttention;
using fovea::distributed::sequence_parallel;

template <class T>
using Layer = fovea::MultiHead<SinkhornAttention, T>;

template <class T>
Layer<T> made(Index width, Index block, Index most) {
  Initialiser initialiser(3);
  return Layer<T>(
      SinkhornAttention({.block = block, .iterations = 3}),
      {.width = width, .heads = 4, .key_heads = 2, .head_width = 6, .sorted_blocks = most},
      initialiser);
}

template <class T>
class DistributedSinkhornLayer : public testing::Test {};
TYPED_TEST_SUITE(DistributedSinkhornLayer, Scalars);

/// Blocks that ranges of tokens cut, that are as long as several of them, and more of them than are
/// added up at once.
TYPED_TEST(DistributedSinkhornLayer, EqualsOneProcess) {
  using T = TypeParam;
  check_layer<T>(made<T>(20, 12, 60), 20, {}, {2, 1, 9 * kReductionBlock, 20});
  check_layer<T>(made<T>(6, 3 * kReductionBlock, 3), 6, {}, {1, 1, 9 * kReductionBlock, 6});
  check_layer<T>(made<T>(6, 2, 5 * kReductionBlock), 6, {}, {1, 1, 7 * kReductionBlock + 6, 6});
}

/// The last rank has three rows, possibly those after the last complete block.
RowLayout last_three_apart(Index count) {
  std::vector<std::vector<Range>> of_ranks(as_size(all_ranks().size()));
  of_ranks.front().push_back({0, count - 3});
  of_ranks.back().push_back({count - 3, count});
  return RowLayout(of_ranks);
}

/// The message of a layer with block 7 and at most 40 blocks for a sequence.
std::string said_to(Index count, Index block = 7, Index rows_missing = 0) {
  Layer<float> layer = made<float>(6, 7, 40);
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
