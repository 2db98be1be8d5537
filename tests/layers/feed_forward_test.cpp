// SPDX-License-Identifier: MIT
#include "fovea/layers/feed_forward.hpp"

#include "layers/by_hand.hpp"

namespace fovea_test::layers_feed_forward {

using Layer = fovea::FeedForward<double>;

Layer layer() {
  fovea::Initialiser initialiser(3);
  Layer made(3, 5, initialiser);
  draw_parameters(made, 5, 0.3);
  return made;
}

TEST(FeedForward, EqualsTheCompositionOfItsParts) {
  Layer layers = layer();
  const Weights weights = weights_of(layers);
  ASSERT_EQ(weights.size(), 4u);
  const Activations x = drawn({1, 1, 4, 3}, 1);
  const Activations y(x.shape());
  layers.forward(x.view(), y.view());
  const Activations inner = projected(x, weights, "feed_forward.in", 0, 1, 5);
  inner.fill([&](Index b, Index h, Index n, Index d) {
    return inner(b, h, n, d) * std::erfc(-inner(b, h, n, d) / std::sqrt(2)) / 2;
  });
  const Activations expected = projected(inner, weights, "feed_forward.out", 0, 1, 3);
  EXPECT_TRUE(close_to(y.values(), expected.values(), 1e-14));
}

TEST(FeedForward, Gradients) {
  Layer layers = layer();
  expect_layer_gradients(layers, {2, 1, 4, 3}, {2, 1, 4, 3}, alone, {.rows_on_threads = 300});
}

}  // namespace fovea_test::layers_feed_forward
