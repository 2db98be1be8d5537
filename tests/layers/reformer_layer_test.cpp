// SPDX-License-Identifier: MIT
#include "fovea/layers/reformer_layer.hpp"

#include "layers/by_hand.hpp"

namespace fovea_test::layers_reformer_layer {

using fovea::ReformerLayer;
using fovea::ReformerLayerOptions;
using fovea::Tokens;

constexpr Index kBatch = 2;
constexpr Index kRows = 12;
constexpr Index kWidth = 6;
const Shape kShape = {kBatch, 1, kRows, kWidth};
const std::vector<Index> kLengths = {12, 7};

ReformerLayerOptions options() {
  ReformerLayerOptions made{.width = kWidth, .heads = 2, .bias = true};
  made.attention = {.chunk = 3, .rounds = 2, .buckets = 4};
  made.attention.seed = 5;
  return made;
}

ReformerLayer<double> make(const ReformerLayerOptions& chosen) {
  fovea::Initialiser initialiser(3);
  ReformerLayer<double> layer(chosen, initialiser);
  draw_parameters(layer, 17, 0.4);
  return layer;
}

Tokens<double> tokens(const View<const double>& x) { return {x, kLengths}; }

TEST(ReformerLayer, EqualsTheOperatorBetweenProjections) {
  ReformerLayer<double> layer = make(options());
  const Activations x = drawn(kShape, 21);
  const Activations y(kShape);
  layer.forward(tokens(x.view()), y.view());
  const Weights weights = weights_of(layer);
  const Activations qk = projected(x, weights, "qkv", 0, 2, 3);
  const Activations v = projected(x, weights, "qkv", 6, 2, 3);
  const Activations out(qk.shape());
  layer.op().forward({qk.view(), v.view(), kLengths}, out.view());
  const Activations expected = projected(side_by_side(out), weights, "out", 0, 1, kWidth);
  EXPECT_TRUE(close_to(y.values(), expected.values(), 1e-13));
}

TEST(ReformerLayer, GradientsMatchDifferences) {
  for (const bool causal : {false, true}) {
    ReformerLayerOptions chosen = options();
    chosen.attention.causal = causal;
    chosen.attention.correct_duplicates = causal;
    ReformerLayer<double> layer = make(chosen);
    expect_layer_gradients(layer, kShape, kShape, tokens);
  }
}

TEST(ReformerLayer, RefusesWhatItsOperatorRefuses) {
  ReformerLayer<double> layer = make(options());
  const Activations x = drawn({1, 1, 10, kWidth}, 1);
  const Activations y(x.shape());
  EXPECT_EQ(refusal([&] { layer.forward(Tokens<double>{x.view()}, y.view()); }),
            "ReformerAttention: chunk is 3; expected a divisor of the 10 rows of qk");
  EXPECT_EQ(refusal([&] {
              ReformerLayerOptions wrong = options();
              wrong.heads = 4;
              make(wrong);
            }),
            "ReformerLayer: heads is 4; expected a divisor of the width 6, or a head_width");
}

}  // namespace fovea_test::layers_reformer_layer
