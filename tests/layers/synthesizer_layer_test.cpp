// SPDX-License-Identifier: MIT
#include "fovea/layers/synthesizer_layer.hpp"

#include "fovea/layers/encoder_block.hpp"
#include "layers/gradient_check.hpp"
#include "support/refusal.hpp"

namespace fovea_test::layers_synthesizer_layer {

using fovea::SynthesizerLayerOptions;
using fovea::Tokens;

constexpr Shape kShape = {2, 1, 7, 6};
const std::vector<Index> kLengths = {7, 4};

Tokens<double> with_lengths(const View<const double>& x) { return Tokens<double>(x, kLengths); }

template <class Op>
class SynthesizerLayer : public testing::Test {
 public:
  using Layer = fovea::SynthesizerLayer<Op, double>;

  static Layer made(const SynthesizerLayerOptions& options) {
    fovea::Initialiser initialiser(3);
    Layer layer(options, initialiser);
    draw_parameters(layer, 17, 0.5);
    return layer;
  }
};
using Ops = testing::Types<fovea::RandomSynthesizerAttention, fovea::FactorisedSynthesizerAttention,
                           fovea::DenseSynthesizerAttention>;
TYPED_TEST_SUITE(SynthesizerLayer, Ops);

TYPED_TEST(SynthesizerLayer, Gradients) {
  for (const bool causal : {false, true}) {
    auto layer = TestFixture::made({.width = 6,
                                    .heads = 2,
                                    .length = 7,
                                    .factor = 3,
                                    .hidden = 5,
                                    .attention = {.causal = causal}});
    expect_layer_gradients(layer, kShape, kShape, with_lengths, {.tolerance = 1e-6});
  }
}

/// Sequences may be shorter than the layer, heads wider, and there need be no biases: what is
/// beyond takes no part.
TYPED_TEST(SynthesizerLayer, OfShorterSequences) {
  auto layer =
      TestFixture::made({.width = 6, .heads = 2, .head_width = 4, .length = 9, .bias = false});
  auto same = layer;
  const Activations x = drawn(kShape, 1);
  const Activations y(kShape);
  const Activations other(kShape);
  layer.forward(x.view(), y.view());
  same.visit([](fovea::Parameter<double>& p) {
    if (p.name == "r") p.value.col(8).setConstant(1e3);
    if (p.name == "r1" || p.name == "r2") p.value.row(8).setConstant(1e3);
    if (p.name == "w2") p.value.rightCols(2).setConstant(1e3);
  });
  same.forward(x.view(), other.view());
  EXPECT_TRUE(same_bits(y.values(), other.values()));
}

TYPED_TEST(SynthesizerLayer, Refusals) {
  const auto layer = TestFixture::made({.width = 6, .heads = 2, .length = 6});
  const Activations x = drawn(kShape, 1);
  const Activations y(kShape);
  EXPECT_EQ(refusal([&] { layer.forward(x.view(), y.view()); }),
            "SynthesizerLayer: x has 7 rows; expected at most 6, the length of the layer");
  const auto longer = TestFixture::made({.width = 6, .heads = 2, .length = 7});
  const Activations logits({1, 1, 1, 1});
  Tokens<double> tokens(x.view());
  tokens.bias = logits.view();
  EXPECT_EQ(refusal([&] { longer.forward(tokens, y.view()); }),
            "SynthesizerLayer: bias must not be given: the layer does not read it");
  const bool all = true;
  tokens = Tokens<double>(x.view());
  tokens.mask = View<const bool>(&all, {1, 1, 1, 1});
  EXPECT_EQ(refusal([&] { longer.forward(tokens, y.view()); }),
            "SynthesizerLayer: mask must not be given: the layer does not read it");
  // In training and backward, too.
  auto trained = TestFixture::made({.width = 6, .heads = 2, .length = 7});
  typename TestFixture::Layer::Saved saved;
  EXPECT_EQ(refusal([&] { trained.forward(tokens, y.view(), saved); }),
            "SynthesizerLayer: mask must not be given: the layer does not read it");
  trained.forward(Tokens<double>(x.view()), y.view(), saved);
  const Activations d_y = drawn(kShape, 2);
  EXPECT_EQ(refusal([&] { trained.backward(tokens, saved, d_y.view(), {}); }),
            "SynthesizerLayer: mask must not be given: the layer does not read it");
  fovea::Initialiser initialiser(5);
  EXPECT_EQ(refusal([&] {
              typename TestFixture::Layer({.width = 6, .heads = 4, .length = 6}, initialiser);
            }),
            "SynthesizerLayer: heads is 4; expected a divisor of the width 6, or a head_width");
  EXPECT_EQ(refusal([&] { typename TestFixture::Layer({.width = 6}, initialiser); }),
            "SynthesizerLayer: length is 0; expected at least 1");
}

TEST(FactorisedSynthesizerLayer, RefusesMatricesWithoutColumns) {
  fovea::Initialiser initialiser(5);
  EXPECT_EQ(refusal([&] {
              fovea::SynthesizerLayer<fovea::FactorisedSynthesizerAttention, double>(
                  {.width = 6, .length = 7, .factor = 0}, initialiser);
            }),
            "SynthesizerLayer: factor is 0; expected at least 1");
}

}  // namespace fovea_test::layers_synthesizer_layer
