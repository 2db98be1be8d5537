// SPDX-License-Identifier: MIT
#include "fovea/layers/hidden_map.hpp"

#include "layers/hidden_cross_by_hand.hpp"

namespace fovea_test::layers_hidden_map {

using Layer = fovea::HiddenMap<double>;
using fovea::ActivationKind;
using fovea::HiddenMapKind;
using fovea::Tokens;

constexpr HiddenMapKind kKinds[] = {HiddenMapKind::fully_connected, HiddenMapKind::convolution,
                                    HiddenMapKind::two_fully_connected};

TEST(HiddenMap, EqualsTheCompositionOfItsParts) {
  for (const HiddenMapKind kind : {HiddenMapKind::fully_connected, HiddenMapKind::convolution}) {
    fovea::Initialiser initialiser(3);
    Layer map(3, 4, initialiser, {.kind = kind});
    draw_parameters(map, 5);
    const Weights weights = weights_of(map);
    ASSERT_EQ(weights.size(), kind == HiddenMapKind::convolution ? 3u : 2u);
    const Activations x = drawn({1, 1, 8, 3}, 1), y({1, 1, 8, 4});
    map.forward(x.view(), y.view());
    EXPECT_TRUE(close_to(y.values(), hidden_map(x, {8}, weights, "map").values(), 1e-14));
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
      expect_layer_gradients(
          map, {2, 1, 6, 3}, {2, 1, 6, 4},
          [&](const View<const double>& x) { return Tokens<double>(x, lengths); },
          {.rows_on_threads = 200});
    }
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
