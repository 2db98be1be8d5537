// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Convolutions over ranks beyond drawn_other_layers_test.cpp: gradients that are added, what is
/// sent, and what is refused.
#include <gtest/gtest.h>

#include "distributed/layer_call.hpp"
#include "fovea/distributed/sequence_parallel.hpp"
#include "fovea/layers/depthwise_conv.hpp"
#include "support/ranks.hpp"

namespace fovea_test::distributed_sequence_parallel_convolution {

using fovea::DepthwiseConv;
using fovea::kReductionBlock;
using fovea::OutputMode;
using fovea::distributed::CommStats;
using fovea::distributed::sequence_parallel;

DepthwiseConv<float> made(Index width, Index taps) {
  fovea::Initialiser initialiser(3);
  return DepthwiseConv<float>(width, initialiser, {.taps = taps});
}

TEST(DistributedConvolutionInto, AddsToTheGradientOfX) {
  const Shape shape = {1, 1, 4 * kReductionBlock + 3, 5};
  Tensor<float> x(shape), d_y(shape);
  x.fill(gaussian(3));
  d_y.fill(gaussian(4));
  const Tensor<float> d_x(shape);
  d_x.fill(gaussian(5));
  const Tensor<float> before = d_x.in({});
  DepthwiseConv<float> whole = made(5, 5);
  DepthwiseConv<float>::Saved nothing;
  whole.backward(x.view(), nothing, d_y.view(), d_x.view(), fovea::Serial{}, OutputMode::add);
  for (const RowLayout& layout : chain_layouts(shape[2])) {
    const Sharding rows(all_ranks(), layout);
    DepthwiseConv<float> layer = made(5, 5);
    const Tensor<float> own = own_part(x, rows), own_d_y = own_part(d_y, rows);
    const Tensor<float> own_d_x = own_part(before, rows);
    sequence_parallel(rows, fovea::Serial{}, [&](auto& over) {
      layer.backward(own.view(), nothing, own_d_y.view(), own_d_x.view(), over, OutputMode::add);
    });
    expect_own_part(own_d_x, d_x, rows, layout.text());
  }
}

TEST(DistributedConvolutionTraffic, CountsTheRowsThatTapsReach) {
  const Index ranks = all_ranks().size();
  const Sharding rows(all_ranks(),
                      RowLayout::contiguous(ranks * kReductionBlock, all_ranks().size()));
  const Tensor<float> x({2, 1, rows.own_count(), 6});
  const Tensor<float> y(x.shape());
  const DepthwiseConv<float> layer = made(6, 5);
  const CommStats comm_stats = sequence_parallel(
      rows, fovea::Serial{}, [&](auto& over) { layer.forward(x.view(), y.view(), over); });
  const Index rank = all_ranks().rank();
  const Index neighbours = (rank > 0 ? 1 : 0) + (rank + 1 < ranks ? 1 : 0);
  EXPECT_EQ(comm_stats.bytes_sent, neighbours * 2 * 2 * 6 * Index{sizeof(float)});
}

/// All ranks report one rank's error, and nothing is written.
TEST(DistributedConvolutionBadInput, IsReportedOnAllRanks) {
  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const Sharding rows = chain_rows(500);
  const auto said = [&](Index taps, Index rows_missing, const std::vector<Index>& lengths = {}) {
    DepthwiseConv<float> layer = made(6, taps);
    DepthwiseConv<float>::Saved nothing;
    const Tensor<float> x({1, 1, rows.own_count() - rows_missing, 6});
    const Tensor<float> y(x.shape());
    y.fill(constant(77));
    const Tokens<float> tokens(View<const float>(x.view()), lengths);
    const auto backward = [&](auto& over) {
      layer.backward(tokens, nothing, x.view(), y.view(), over);
    };
    const std::string text =
        refused_over(rows, [&](auto& over) { layer.forward(tokens, y.view(), over); });
    EXPECT_EQ(refused_over(rows, backward), text);
    for (const float at : y.values()) EXPECT_EQ(at, 77);
    EXPECT_TRUE(layer.weight.gradient.size() == 0 || layer.weight.gradient.isZero());
    return text;
  };
  const std::string rank = "rank " + std::to_string(last);
  const Index own = rows.layout().count(last);
  EXPECT_EQ(said(5, is_last ? 1 : 0), rank + ": sequence_parallel: the activations have " +
                                          std::to_string(own - 1) + " rows; expected " +
                                          std::to_string(own) + ", the rows of " + rank);
  EXPECT_EQ(said(5, 0, {is_last ? Index{501} : Index{500}}),
            rank + ": DepthwiseConv: key_lengths[0] is 501; expected 0 to 500, the rows of x");
  if (last == 0) return;
  EXPECT_EQ(said(is_last ? 3 : 5, 0),
            "DepthwiseConv: ranks differ in their row layouts or options");
}

}  // namespace fovea_test::distributed_sequence_parallel_convolution
