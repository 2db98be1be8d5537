// SPDX-License-Identifier: MIT
#include "fovea/layers/hidden_map.hpp"

#include "layers/by_hand.hpp"

namespace fovea_test::layers_hidden_map {

using Layer = fovea::HiddenMap<double>;
using fovea::ActivationKind;
using fovea::HiddenMapKind;
using fovea::Tokens;

Layer layer(Index in, Index out, HiddenMapKind kind) {
  fovea::Initialiser initialiser(3);
  Layer made(in, out, initialiser, {.kind = kind});
  draw_parameters(made, 5);
  return made;
}

constexpr HiddenMapKind kKinds[] = {HiddenMapKind::fully_connected, HiddenMapKind::convolution,
                                    HiddenMapKind::two_fully_connected};

TEST(HiddenMap, EqualsTheCompositionOfItsParts) {
  for (const HiddenMapKind kind : {HiddenMapKind::fully_connected, HiddenMapKind::convolution}) {
    Layer map = layer(3, 4, kind);
    std::vector<fovea::RowMatrix<double>> weights;
    map.visit([&](fovea::Parameter<double>& p) { weights.push_back(p.value); });
    const bool convolves = kind == HiddenMapKind::convolution;
    ASSERT_EQ(weights.size(), convolves ? 3u : 2u);
    const Activations x = drawn({1, 1, 8, 3}, 1);
    const Activations y({1, 1, 8, 4});
    map.forward(x.view(), y.view());
    std::vector<double> expected;
    for_each_index(y.shape(), [&](Index, Index, Index n, Index j) {
      double sum = weights.back()(0, j);
      for (Index i = 0; i < 3; ++i) {
        double at = x(0, 0, n, i);
        if (convolves) {
          at = 0;
          for (Index t = 0; t < 5; ++t) {
            const Index from = n + t - 2;
            if (from >= 0 && from < 8) at += weights[0](t, i) * x(0, 0, from, i);
          }
        }
        sum += at * weights[weights.size() - 2](i, j);
      }
      expected.push_back(sum * std::erfc(-sum / std::sqrt(2)) / 2);
    });
    EXPECT_TRUE(close_to(y.values(), expected, 1e-14));
  }
}

constexpr ActivationKind kFunctions[] = {ActivationKind::gelu, ActivationKind::gelu_tanh,
                                         ActivationKind::relu, ActivationKind::silu,
                                         ActivationKind::tanh, ActivationKind::identity};

Layer of_functions(HiddenMapKind kind, ActivationKind inner, ActivationKind last, Index hidden) {
  fovea::Initialiser initialiser(3);
  Layer made(3, 4, initialiser,
             {.kind = kind, .activation = last, .inner_activation = inner, .hidden = hidden});
  draw_parameters(made, 5);
  return made;
}

TEST(HiddenMap, TwoMapsWithTheirFunctions) {
  for (const Index hidden : {0, 5}) {
    Layer map = of_functions(HiddenMapKind::two_fully_connected, ActivationKind::silu,
                             ActivationKind::tanh, hidden);
    const Weights weights = weights_of(map);
    const Index width = hidden == 0 ? 4 : hidden;
    const Activations x = drawn({1, 1, 8, 3}, 1), y({1, 1, 8, 4});
    map.forward(x.view(), y.view());
    Activations inner = projected(x, weights, "map.in", 0, 1, width);
    inner.fill([&](Index b, Index h, Index n, Index d) {
      return inner(b, h, n, d) / (1 + std::exp(-inner(b, h, n, d)));
    });
    std::vector<double> expected = projected(inner, weights, "map.out", 0, 1, 4).values();
    for (double& at : expected) at = std::tanh(at);
    EXPECT_TRUE(close_to(y.values(), expected, 1e-14));
  }
}

/// Functions that halve the variance have larger weights before them than odd ones.
TEST(HiddenMap, WeightsAreDrawnForTheirFunction) {
  const auto largest = [](ActivationKind kind) {
    fovea::Initialiser initialiser(3);
    Layer made(40, 40, initialiser, {.activation = kind});
    return weights_of(made).at("map.weight").cwiseAbs().maxCoeff();
  };
  const double he = std::sqrt(6.0 / 40), glorot = std::sqrt(6.0 / 80);
  EXPECT_NEAR(largest(ActivationKind::gelu), he, 0.01 * he);
  EXPECT_NEAR(largest(ActivationKind::relu), he, 0.01 * he);
  EXPECT_NEAR(largest(ActivationKind::tanh), glorot, 0.01 * glorot);
  EXPECT_NEAR(largest(ActivationKind::identity), glorot, 0.01 * glorot);
}

TEST(HiddenMap, GradientsOfAllFunctions) {
  const std::vector<Index> lengths = {6, 4};
  for (const HiddenMapKind kind : kKinds) {
    for (const ActivationKind function : kFunctions) {
      Layer map = of_functions(kind, ActivationKind::tanh, function, 5);
      expect_layer_gradients(map, {2, 1, 6, 3}, {2, 1, 6, 4}, [&](const View<const double>& x) {
        return Tokens<double>(x, lengths);
      });
    }
  }
}

TEST(HiddenMap, ThreadsDoNotChangeBits) {
  for (const HiddenMapKind kind : kKinds) {
    Layer map = layer(20, 24, kind);
    expect_same_bits_for_threads(map, {2, 1, 200, 20}, {2, 1, 200, 24}, alone);
  }
}

TEST(HiddenMap, Refusals) {
  EXPECT_EQ(refusal([] {
              of_functions(HiddenMapKind::two_fully_connected, ActivationKind::gelu,
                           ActivationKind::gelu, -1);
            }),
            "HiddenMap: hidden is -1; expected at least 1");
  const Tensor<double> x({2, 1, 6, 3}), y({2, 1, 6, 4});
  const std::vector<Index> lengths = {7, 4};
  const Tokens<double> tokens(x.view(), lengths);
  for (const HiddenMapKind kind : kKinds) {
    const Layer map = of_functions(kind, ActivationKind::tanh, ActivationKind::tanh, 5);
    Layer::Saved saved;
    EXPECT_EQ(refusal([&] { map.forward(tokens, y.view(), saved); }),
              "HiddenMap: key_lengths[0] is 7; expected 0 to 6, the rows of x");
  }
}

}  // namespace fovea_test::layers_hidden_map
