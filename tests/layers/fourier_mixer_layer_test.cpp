// SPDX-License-Identifier: MIT
// fovea_test(NEEDS fftw)
#include "fovea/layers/fourier_mixer_layer.hpp"

#include "fovea/layers/encoder_block.hpp"
#include "layers/gradient_check.hpp"
#include "support/refusal.hpp"

namespace fovea_test::layers_fourier_mixer_layer {

using Layer = fovea::FourierMixerLayer<double>;
using fovea::Tokens;

constexpr Shape kShape = {2, 1, 7, 6};

TEST(FourierMixerLayer, IsItsOperator) {
  const Activations x = drawn(kShape, 1);
  const Activations y(kShape);
  const Activations expected(kShape);
  Layer(6).forward(x.view(), y.view());
  fovea::FourierMixer().forward(x.view(), expected.view());
  EXPECT_TRUE(same_bits(y.values(), expected.values()));
}

/// A block of FNet, with either place of the normalisation.
void expect_block_gradients(bool norm_first) {
  fovea::Initialiser initialiser(3);
  fovea::EncoderBlock<Layer, double> block(Layer(6), 6, 8, initialiser, {.norm_first = norm_first});
  draw_parameters(block, 5, 0.3);
  expect_layer_gradients(block, kShape, kShape, alone, {.tolerance = 1e-6});
}

TEST(FourierMixerLayer, GradientsInAnEncoderBlock) { expect_block_gradients(true); }

TEST(FourierMixerLayer, GradientsInAPostNormBlock) { expect_block_gradients(false); }

TEST(FourierMixerLayer, RefusesWhatItCannotRead) {
  const Activations x = drawn(kShape, 1);
  const Activations y(kShape);
  const std::vector<Index> lengths = {7, 3};
  EXPECT_EQ(refusal([&] { Layer(6).forward(Tokens<double>(x.view(), lengths), y.view()); }),
            "FourierMixerLayer: key_lengths must not be given: every token is mixed with every "
            "other one");
  Tokens<double> masked(x.view());
  Tensor<bool> mask({1, 1, 1, 7});
  masked.mask = mask.view();
  EXPECT_EQ(refusal([&] { Layer(6).forward(masked, y.view()); }),
            "FourierMixerLayer: mask must not be given: every token is mixed with every other one");
  EXPECT_EQ(refusal([&] { Layer(5).forward(x.view(), y.view()); }),
            "FourierMixerLayer: x has width 6; expected 5, the width of the layer");
  EXPECT_EQ(refusal([] { Layer(0); }),
            "FourierMixerLayer: the width of x is 0; expected at least 1");
}

}  // namespace fovea_test::layers_fourier_mixer_layer
