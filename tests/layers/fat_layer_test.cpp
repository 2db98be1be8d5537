// SPDX-License-Identifier: MIT
// fovea_test(NEEDS fftw)
#include "fovea/layers/fat_layer.hpp"

#include "fovea/attention/full.hpp"
#include "layers/hidden_cross_by_hand.hpp"

namespace fovea_test::layers_fat_layer {

using fovea::FatLayerOptions;
using fovea::HiddenMapKind;
using fovea::Tokens;
using Layer = fovea::FatLayer<double>;

constexpr Shape kShape = {2, 1, 9, 6};
const std::vector<Index> kLengths = {9, 6};

Layer layer(HiddenMapKind map) {
  FatLayerOptions options;
  options.width = 6;
  options.heads = 2;
  options.head_width = 4;
  options.map = map;
  fovea::Initialiser initialiser(3);
  Layer made(options, initialiser);
  draw_parameters(made, 17, 0.4);
  return made;
}

Tokens<double> with_lengths(const View<const double>& x) { return Tokens<double>(x, kLengths); }

TEST(FatLayer, MatchesItsDefinition) {
  Layer made = layer(HiddenMapKind::fully_connected);
  const Activations x = drawn(kShape, 11);
  const Activations y(kShape);
  made.forward(with_lengths(x.view()), y.view());
  const Weights weights = weights_of(made);
  const auto expected =
      hidden_cross_layer_by_hand(fovea::FullAttention(), x, hidden_cross(x, kLengths, weights),
                                 Activations(), kLengths, weights, 2, 4);
  EXPECT_TRUE(close_to(y.values(), expected, 1e-12));
}

TEST(FatLayer, Gradients) {
  for (const HiddenMapKind map : {HiddenMapKind::fully_connected, HiddenMapKind::convolution,
                                  HiddenMapKind::two_fully_connected}) {
    Layer made = layer(map);
    expect_layer_gradients(made, kShape, kShape, with_lengths,
                           {.tolerance = 1e-6, .rows_on_threads = 200});
  }
}

/// Both maps have the functions and the width of the options.
TEST(FatLayer, GradientsOfOtherMaps) {
  FatLayerOptions options;
  options.width = 6;
  options.heads = 2;
  options.map = HiddenMapKind::two_fully_connected;
  options.inner_activation = fovea::ActivationKind::silu;
  options.activation = fovea::ActivationKind::identity;
  options.map_hidden = 5;
  fovea::Initialiser initialiser(3);
  Layer made(options, initialiser);
  draw_parameters(made, 17, 0.4);
  EXPECT_EQ(weights_of(made).at("f1.in.weight").cols(), 5);
  EXPECT_EQ(weights_of(made).at("f2.out.weight").rows(), 5);
  expect_layer_gradients(made, kShape, kShape, with_lengths, {.tolerance = 1e-6});
}

/// Bias and mask reach its operator.
TEST(FatLayer, GradientsWithBiasAndMask) {
  Layer made = layer(HiddenMapKind::fully_connected);
  const Activations bias = drawn({1, 2, 9, 9}, 31);
  Tensor<bool> mask({2, 1, 1, 9});
  mask.fill([](Index, Index, Index, Index key) { return key != 2; });
  const auto input = [&](const View<const double>& x) {
    Tokens<double> tokens = with_lengths(x);
    tokens.bias = bias.view();
    tokens.mask = mask.view();
    return tokens;
  };
  const Activations x = drawn(kShape, 11), y(kShape), plain(kShape);
  made.forward(input(x.view()), y.view());
  made.forward(with_lengths(x.view()), plain.view());
  EXPECT_FALSE(close_to(y.values(), plain.values(), 1e-3));
  expect_layer_gradients(made, kShape, kShape, input, {.tolerance = 1e-6});
}

TEST(FatLayer, BackwardRefusesOtherLengths) {
  Layer made = layer(HiddenMapKind::convolution);
  const Activations x = filled({2, 1, 9, 6}, 1);
  const Activations y(x.shape());
  Layer::Saved saved;
  made.forward(with_lengths(x.view()), y.view(), saved);
  const std::vector<Index> longer = {9, 10};
  EXPECT_EQ(refusal([&] { made.backward(Tokens<double>(x.view(), longer), saved, y.view(), {}); }),
            "FatLayer: key_lengths[1] is 10; expected 0 to 9, the rows of x");
}

}  // namespace fovea_test::layers_fat_layer
