// SPDX-License-Identifier: MIT
#include "fovea/layers/layer_norm.hpp"

#include "layers/gradient_check.hpp"

namespace fovea_test::layers_layer_norm {

using Layer = fovea::LayerNorm<double>;

Layer layer(Index width) {
  Layer made(width);
  draw_parameters(made, 7);
  return made;
}

TEST(LayerNorm, MatchesItsDefinition) {
  for (const Index width : {1, 3, 16, 37, 70}) {
    const Layer norm = layer(width);
    const Activations x = drawn({2, 1, 5, width}, 1);
    const Activations y({2, 1, 5, width}, {.gap = 2});
    norm.forward(x.view(), y.view());
    std::vector<double> expected;
    for_each_index(x.shape(), [&](Index b, Index, Index n, Index d) {
      double mean = 0;
      double variance = 0;
      for (Index c = 0; c < width; ++c) mean += x(b, 0, n, c) / static_cast<double>(width);
      for (Index c = 0; c < width; ++c) {
        variance += std::pow(x(b, 0, n, c) - mean, 2) / static_cast<double>(width);
      }
      expected.push_back((x(b, 0, n, d) - mean) / std::sqrt(variance + 1e-5) *
                             norm.scale.value(0, d) +
                         norm.shift.value(0, d));
    });
    EXPECT_TRUE(close_to(y.values(), expected, 1e-12)) << width;
    EXPECT_EQ(y.changed_gaps(), 0);
  }
}

TEST(LayerNorm, ARowOfZerosGivesTheShift) {
  const Layer norm = layer(21);
  const Activations x = filled({1, 1, 1, 21}, 0);
  const Activations y(x.shape());
  norm.forward(x.view(), y.view());
  const double* const shift = norm.shift.value.data();
  EXPECT_TRUE(same_bits(y.values(), std::vector<double>(shift, shift + 21)));
}

TEST(LayerNorm, Gradients) {
  for (const Index width : {2, 19}) {
    Layer norm = layer(width);
    expect_layer_gradients(norm, {2, 1, 3, width}, {2, 1, 3, width}, alone);
  }
}

TEST(LayerNorm, ThreadsDoNotChangeBits) {
  Layer norm = layer(150);
  expect_same_bits_for_threads(norm, {2, 1, 300, 150}, {2, 1, 300, 150}, alone);
}

TEST(LayerNorm, Refusals) {
  EXPECT_EQ(refusal([] { Layer(3, {.epsilon = 0}); }),
            "LayerNorm: epsilon is 0; expected more than 0");
}

}  // namespace fovea_test::layers_layer_norm
