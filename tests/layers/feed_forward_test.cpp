// SPDX-License-Identifier: MIT
#include "fovea/layers/feed_forward.hpp"

#include "layers/gradient_check.hpp"

namespace fovea_test::layers_feed_forward {

using Layer = fovea::FeedForward<double>;

Layer layer(Index width, Index hidden) {
  fovea::Initialiser initialiser(3);
  Layer made(width, hidden, initialiser);
  draw_parameters(made, 5, 0.3);
  return made;
}

TEST(FeedForward, EqualsTheCompositionOfItsParts) {
  Layer layers = layer(3, 5);
  std::vector<fovea::RowMatrix<double>> w;
  layers.visit([&](fovea::Parameter<double>& p) { w.push_back(p.value); });
  ASSERT_EQ(w.size(), 4u);
  const Activations x = drawn({1, 1, 4, 3}, 1);
  const Activations y(x.shape());
  layers.forward(x.view(), y.view());
  std::vector<double> expected;
  for_each_index(y.shape(), [&](Index, Index, Index n, Index d) {
    double out = w[3](0, d);
    for (Index j = 0; j < 5; ++j) {
      double sum = w[1](0, j);
      for (Index i = 0; i < 3; ++i) sum += x(0, 0, n, i) * w[0](i, j);
      out += sum * std::erfc(-sum / std::sqrt(2)) / 2 * w[2](j, d);
    }
    expected.push_back(out);
  });
  EXPECT_TRUE(close_to(y.values(), expected, 1e-14));
}

TEST(FeedForward, Gradients) {
  Layer layers = layer(3, 5);
  expect_layer_gradients(layers, {2, 1, 4, 3}, {2, 1, 4, 3}, alone);
}

TEST(FeedForward, ThreadsDoNotChangeBits) {
  Layer layers = layer(20, 40);
  expect_same_bits_for_threads(layers, {2, 1, 200, 20}, {2, 1, 200, 20}, alone);
}

}  // namespace fovea_test::layers_feed_forward
