// SPDX-License-Identifier: MIT
#include "fovea/layers/activation_function.hpp"

#include "layers/gradient_check.hpp"

namespace fovea_test::layers_activation_function {

using fovea::ActivationKind;
using Layer = fovea::ActivationFunction<double>;

constexpr ActivationKind kKinds[] = {ActivationKind::gelu, ActivationKind::gelu_tanh,
                                     ActivationKind::relu, ActivationKind::silu,
                                     ActivationKind::tanh, ActivationKind::identity};

double by_hand(ActivationKind kind, double x) {
  const double inner = std::sqrt(2 / std::acos(-1)) * (x + 0.044715 * x * x * x);
  switch (kind) {
    case ActivationKind::gelu:
      return x * std::erfc(-x / std::sqrt(2)) / 2;
    case ActivationKind::gelu_tanh:
      return x * (1 + std::tanh(inner)) / 2;
    case ActivationKind::relu:
      return x > 0 ? x : 0;
    case ActivationKind::silu:
      return x / (1 + std::exp(-x));
    case ActivationKind::tanh:
      return std::tanh(x);
    case ActivationKind::identity:
      return x;
  }
  return std::nan("");
}

TEST(ActivationFunction, MatchesItsDefinition) {
  const Activations x = drawn({2, 1, 5, 70}, 1, 3);
  for (const ActivationKind kind : kKinds) {
    const Activations y(x.shape());
    Layer(kind).forward(x.view(), y.view());
    std::vector<double> expected;
    for (const double at : x.values()) expected.push_back(by_hand(kind, at));
    EXPECT_TRUE(close_to(y.values(), expected, 1e-14)) << static_cast<int>(kind);
  }
}

TEST(ActivationFunction, Gradients) {
  for (const ActivationKind kind : kKinds) {
    Layer layer(kind);
    expect_layer_gradients(layer, {2, 1, 3, 70}, {2, 1, 3, 70}, alone, {.rows_on_threads = 300});
  }
}

}  // namespace fovea_test::layers_activation_function
