// SPDX-License-Identifier: MIT
#include "fovea/layers/learned_sorting.hpp"

#include "fovea/layers/multi_head.hpp"
#include "layers/by_hand.hpp"

namespace fovea_test::layers_learned_sorting {

using fovea::SinkhornAttention;
using fovea::Tokens;
using Layer = fovea::MultiHead<SinkhornAttention, double>;

constexpr Index kBatch = 2;
constexpr Index kRows = 12;
constexpr Index kWidth = 6;
constexpr Index kBlock = 3;
constexpr Index kMost = 5;
const Shape kShape = {kBatch, 1, kRows, kWidth};
const std::vector<Index> kLengths = {12, 6};

Layer make() {
  fovea::Initialiser initialiser(3);
  Layer layer(SinkhornAttention({.block = kBlock, .iterations = 2}),
              {.width = kWidth,
               .heads = 4,
               .key_heads = 2,
               .head_width = 3,
               .bias = true,
               .sorted_blocks = kMost},
              initialiser);
  draw_parameters(layer, 17, 0.4);
  return layer;
}

Tokens<double> tokens(const View<const double>& x) { return {x, kLengths}; }

/// The sorting logits are a linear map of sums of blocks.
TEST(LearnedSorting, EqualsTheOperatorBetweenProjections) {
  Layer layer = make();
  const Activations x = drawn(kShape, 21);
  const Activations y(kShape);
  layer.forward(tokens(x.view()), y.view());
  const Weights weights = weights_of(layer);
  const auto [q, k, v] = heads_of(x, weights, "qkv", 4, 2, 3);
  const Activations sums({kBatch, 1, kRows / kBlock, kWidth});
  sums.fill([&](Index b, Index, Index u, Index c) {
    return x(b, 0, 3 * u, c) + x(b, 0, 3 * u + 1, c) + x(b, 0, 3 * u + 2, c);
  });
  const Activations logits = projected(sums, weights, "sorting", 0, 2, kMost);
  const Activations out(q.shape());
  layer.op().forward(
      {q.view(), k.view(), v.view(), kLengths, cut(logits.view(), 3, 0, kRows / kBlock)},
      out.view());
  const Activations expected = projected(side_by_side(out), weights, "out", 0, 1, kWidth);
  EXPECT_TRUE(close_to(y.values(), expected.values(), 1e-13));
}

TEST(LearnedSorting, GradientsMatchDifferences) {
  Layer layer = make();
  // The columns of a fifth block have no gradient.
  expect_layer_gradients(layer, kShape, kShape, tokens);
}

TEST(LearnedSorting, RefusesTooManyBlocks) {
  Layer layer = make();
  const Activations x = drawn({1, 1, 18, kWidth}, 1);
  const Activations y(x.shape());
  EXPECT_EQ(
      refusal([&] { layer.forward(Tokens<double>{x.view()}, y.view()); }),
      "SinkhornAttention: x has 6 blocks; expected at most 5, the sorted_blocks of the layer");
  const Activations most = drawn({1, 1, 15, kWidth}, 1);
  const Activations to(most.shape());
  EXPECT_EQ(refusal([&] { layer.forward(Tokens<double>{most.view()}, to.view()); }), "accepted");
  layer.op().options.block = 6;
  EXPECT_EQ(refusal([&] { layer.forward(Tokens<double>{x.view()}, y.view()); }),
            "SinkhornAttention: block is 6; expected 3, as when the layer was constructed");
}

}  // namespace fovea_test::layers_learned_sorting
