// SPDX-License-Identifier: MIT
#include "fovea/layers/rms_norm.hpp"

#include "layers/gradient_check.hpp"

namespace fovea_test::layers_rms_norm {

using Layer = fovea::RmsNorm<double>;

Layer layer(Index width) {
  Layer made(width);
  draw_parameters(made, 7);
  return made;
}

/// The definition, in double.
std::vector<double> oracle(const Layer& norm, const Activations& x, double epsilon) {
  const Index width = norm.width();
  std::vector<double> expected;
  for_each_index(x.shape(), [&](Index b, Index, Index n, Index d) {
    double square = 0;
    for (Index c = 0; c < width; ++c) {
      square += std::pow(x(b, 0, n, c), 2) / static_cast<double>(width);
    }
    expected.push_back(x(b, 0, n, d) / std::sqrt(square + epsilon) * norm.scale.value(0, d));
  });
  return expected;
}

TEST(RmsNorm, MatchesItsDefinition) {
  for (const Index width : {1, 3, 16, 37, 70}) {
    const Layer norm = layer(width);
    const Activations x = drawn({2, 1, 5, width}, 1);
    const Activations y({2, 1, 5, width}, {.gap = 2});
    norm.forward(x.view(), y.view());
    EXPECT_TRUE(close_to(y.values(), oracle(norm, x, 1e-6), 1e-12)) << width;
    EXPECT_EQ(y.changed_gaps(), 0);
  }
}

/// Rows far from 1, down to those that epsilon alone divides.
TEST(RmsNorm, OfHugeAndTinyRows) {
  const Layer norm = layer(37);
  for (const double size : {1e-200, 1e-9, 1e-3, 1e5, 1e150}) {
    const Activations x = drawn({1, 1, 4, 37}, 1, size);
    const Activations y(x.shape());
    norm.forward(x.view(), y.view());
    const std::vector<double> expected = oracle(norm, x, 1e-6);
    const std::vector<double> got = y.values();
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_LE(std::abs(got[i] - expected[i]), 1e-14 * std::abs(expected[i])) << size;
    }
  }
  const fovea::RmsNorm<float> in_float(64);
  const Tensor<float> x({1, 1, 1, 64});
  const Tensor<float> y(x.shape());
  x.fill(constant(1e18));
  in_float.forward(x.view(), y.view());
  for (const float at : y.values()) EXPECT_FLOAT_EQ(at, 1);
}

TEST(RmsNorm, EpsilonIsAdded) {
  const Layer norm(5, {.epsilon = 0.25});
  const Activations x = drawn({1, 1, 3, 5}, 1);
  const Activations y(x.shape());
  norm.forward(x.view(), y.view());
  EXPECT_TRUE(close_to(y.values(), oracle(norm, x, 0.25), 1e-14));
}

TEST(RmsNorm, ARowOfZerosGivesZeros) {
  Layer norm = layer(21);
  const Activations x = filled({1, 1, 1, 21}, 0);
  const Activations y(x.shape()), d_x(x.shape());
  Layer::Saved saved;
  norm.forward(x.view(), y.view(), saved);
  for (const double zero : y.values()) EXPECT_EQ(zero, 0);  // -0 where a scale is negative
  // There it is linear: a thousand times the scale.
  const Activations d_y = drawn(x.shape(), 2);
  norm.backward(x.view(), saved, d_y.view(), d_x.view());
  for (Index c = 0; c < 21; ++c) {
    EXPECT_NEAR(d_x(0, 0, 0, c), 1e3 * d_y(0, 0, 0, c) * norm.scale.value(0, c), 1e-9);
    EXPECT_EQ(norm.scale.gradient(0, c), 0);
  }
}

TEST(RmsNorm, Gradients) {
  for (const Index width : {2, 19}) {
    Layer norm = layer(width);
    expect_layer_gradients(norm, {2, 1, 3, width}, {2, 1, 3, width}, alone);
  }
}

TEST(RmsNorm, ThreadsDoNotChangeBits) {
  Layer norm = layer(150);
  expect_same_bits_for_threads(norm, {2, 1, 300, 150}, {2, 1, 300, 150}, alone);
}

TEST(RmsNorm, Refusals) {
  EXPECT_EQ(refusal([] { Layer(3, {.epsilon = 0}); }),
            "RmsNorm: epsilon is 0; expected more than 0");
  EXPECT_EQ(refusal([] { Layer(0); }), "RmsNorm: the width of x is 0; expected at least 1");
  const Layer norm = layer(4);
  const Activations x = filled({1, 1, 2, 5}, 1);
  const Activations y({1, 1, 2, 4});
  EXPECT_EQ(refusal([&] { norm.forward(x.view(), y.view()); }),
            "RmsNorm: x has width 5; expected 4, the width of the layer");
}

}  // namespace fovea_test::layers_rms_norm
