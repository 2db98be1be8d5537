// SPDX-License-Identifier: MIT
#include "fovea/layers/depthwise_conv.hpp"

#include "layers/gradient_check.hpp"

namespace fovea_test::layers_depthwise_conv {

using Layer = fovea::DepthwiseConv<double>;
using fovea::Tokens;

Layer layer(Index width, Index taps = 5) {
  fovea::Initialiser initialiser(3);
  return Layer(width, initialiser, {.taps = taps});
}

TEST(DepthwiseConv, MatchesItsDefinition) {
  for (const Index rows : {1, 2, 4, 300}) {
    const Layer conv = layer(3);
    const Activations x = drawn({2, 1, rows, 3}, 1);
    const Activations y({2, 1, rows, 3}, {.gap = 2});
    conv.forward(x.view(), y.view());
    std::vector<double> expected;
    for_each_index(x.shape(), [&](Index b, Index, Index n, Index c) {
      double sum = 0;
      for (Index t = 0; t < 5; ++t) {
        const Index from = n + t - 2;
        if (from >= 0 && from < rows) sum += conv.weight.value(t, c) * x(b, 0, from, c);
      }
      expected.push_back(sum);
    });
    EXPECT_TRUE(close_to(y.values(), expected, 1e-14)) << rows;
    EXPECT_EQ(y.changed_gaps(), 0);
  }
}

TEST(DepthwiseConv, ALengthEqualsAShorterSequence) {
  const Layer conv = layer(3);
  const Activations x = drawn({2, 1, 9, 3}, 1);
  const Activations y(x.shape());
  const std::vector<Index> lengths = {9, 4};
  conv.forward(Tokens<double>(x.view(), lengths), y.view());
  const Activations alone({1, 1, 4, 3});
  conv.forward(cut(cut(x.view(), 0, 1, 1), 2, 0, 4), alone.view());
  for_each_index(alone.shape(), [&](Index, Index, Index n, Index c) {
    EXPECT_EQ(y(1, 0, n, c), alone(0, 0, n, c));
    EXPECT_EQ(y(1, 0, 5, c), 0);
  });
}

TEST(DepthwiseConv, Gradients) {
  const std::vector<Index> lengths = {7, 3};
  for (const Index taps : {1, 5}) {
    Layer conv = layer(3, taps);
    expect_layer_gradients(conv, {2, 1, 7, 3}, {2, 1, 7, 3}, alone, {.rows_on_threads = 300});
    expect_layer_gradients(conv, {2, 1, 7, 3}, {2, 1, 7, 3},
                           [&](const View<const double>& x) { return Tokens<double>(x, lengths); });
  }
}

TEST(DepthwiseConv, Refusals) {
  EXPECT_EQ(refusal([] { layer(3, 4); }), "DepthwiseConv: taps is 4; expected an odd number");
}

}  // namespace fovea_test::layers_depthwise_conv
