// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Layers over ranks beyond drawn_layers_test.cpp: positions, and what is sent.
#include "fovea/distributed/sequence_parallel.hpp"

#include <gtest/gtest.h>

#include "distributed/layer_call.hpp"
#include "fovea/distributed.hpp"
#include "fovea/layers.hpp"
#include "support/ranks.hpp"

namespace fovea_test::distributed_sequence_parallel {

using fovea::Initialiser;
using fovea::kReductionBlock;
using fovea::View;
using fovea::distributed::CommStats;
using fovea::distributed::sequence_parallel;

/// Positions are those of the sequence, in whatever order its rows are spread, heads and all.
TEST(DistributedRotary, UsesPositionsInTheSequence) {
  constexpr Index count = 211, width = 8;
  Tensor<double> heads({2, 3, count, width}), cosines({1, 1, count + 5, width / 2});
  heads.fill(gaussian(5));
  cosines.fill(gaussian(6));
  const Tensor<double> sines = cosines.in({});
  const fovea::Rotary<double> rotary({}, width);
  std::vector<std::int32_t> positions;
  for (std::int32_t n = 0; n < count; ++n) positions.push_back(n * 7 % 100);
  const std::vector<Index> packed = {0, 100, 101, count};
  for (int way = 0; way < 4; ++way) {
    fovea::RotaryCall<double> call{.first = 5};
    if (way == 1) call.positions = positions;
    if (way == 2) call = {.first = 5, .cosines = cosines.view(), .sines = sines.view()};
    if (way == 3) call.cu_seqlens = packed;
    const Index batch = way == 3 ? 1 : 2;
    const Tensor<double> whole = heads.in({});
    rotary.turn(cut(whole.view(), 0, 0, batch), call);
    for (const RowLayout& layout : layouts_of(count, all_ranks().size())) {
      const Sharding rows(all_ranks(), layout);
      const Tensor<double> own =
          own_part(heads, rows).in({.order = {3, 0, 2, 1}, .gap = 1, .reversed = {true, true}});
      std::vector<std::int32_t> own_positions;
      for (const Range& range : rows.own()) {
        for (Index n = range.begin; n < range.end; ++n) {
          own_positions.push_back(positions[as_size(n)]);
        }
      }
      if (way == 1) call.positions = own_positions;
      sequence_parallel(rows, fovea::Serial{},
                        [&](auto& over) { rotary.turn(cut(own.view(), 0, 0, batch), call, over); });
      expect_own_part(own, whole, rows, layout.text());
    }
  }
}

TEST(DistributedLayerTraffic, CountsSumsToNeighboursAndToAll) {
  const Index ranks = all_ranks().size();
  const Sharding rows(all_ranks(), RowLayout::contiguous(ranks * kReductionBlock,
                                                         all_ranks().size(), kReductionBlock));
  Initialiser initialiser(1);
  const Tensor<float> x({1, 1, rows.own_count(), 64});
  LayerCall<fovea::Linear<float>, float> own(
      fovea::Linear<float>(64, 64, initialiser, {.bias = false}), x, x);
  fovea::Linear<float>::Saved saved;
  const CommStats comm_stats = sequence_parallel(
      rows, fovea::Serial{}, [&](auto& over) { own.backward({x.view()}, saved, over); });
  const Index sum = Index{64} * 64 * Index{sizeof(float)};
  const bool is_last = all_ranks().rank() + 1 == all_ranks().size();
  EXPECT_EQ(comm_stats.bytes_sent, is_last ? (ranks - 1) * sum : sum);
}

}  // namespace fovea_test::distributed_sequence_parallel
