// SPDX-License-Identifier: MIT
#include "fovea/layers/parameter.hpp"

#include "fovea/layers/feed_forward.hpp"
#include "layers/gradient_check.hpp"

namespace fovea_test::layers_parameter {

using fovea::Initialisation;
using fovea::Initialiser;
using fovea::Parameter;

TEST(Parameter, IsDrawnUniformlyBetweenItsBounds) {
  for (const Initialisation how : {Initialisation::glorot, Initialisation::he}) {
    Parameter<double> w("w", 100, 60);
    Initialiser(5).draw(w, how, 100, 60);
    const double bound = std::sqrt(6.0 / (how == Initialisation::glorot ? 160 : 100));
    EXPECT_LT(w.value.array().abs().maxCoeff(), bound);
    EXPECT_GT(w.value.array().abs().maxCoeff(), 0.99 * bound);
    EXPECT_NEAR(w.value.mean(), 0, 0.02 * bound);
    EXPECT_NEAR(w.value.array().square().mean(), bound * bound / 3, 0.02 * bound * bound);
    EXPECT_EQ(w.gradient.size(), 0);
    EXPECT_EQ(w.gradient_sum().rows(), 100);
    EXPECT_EQ(w.gradient.cols(), 60);
    EXPECT_EQ(w.gradient.squaredNorm(), 0);
  }
}

/// A model that is to be loaded draws nothing, and one that is only called has no gradients.
TEST(Parameter, ZeroInitialisationDrawsNothing) {
  Initialiser zeros = Initialiser::zeros();
  fovea::FeedForward<float> layer(3, 5, zeros);
  layer.visit([](const Parameter<float>& p) {
    EXPECT_GT(p.value.size(), 0);
    EXPECT_EQ(p.value.squaredNorm(), 0);
    EXPECT_EQ(p.gradient.size(), 0);
  });
}

TEST(Parameter, DrawsDependOnTheGeneratorOnly) {
  Initialiser initialiser(42);
  Parameter<double> first("first", 2, 3);
  Parameter<double> second("second", 2, 3);
  initialiser.uniform(first, 0.5);
  initialiser.uniform(second, 0.5);
  EXPECT_EQ(first.value(1, 2), fovea::uniform_draw<double>(42, 0, 0, 1, 2) - 0.5);
  EXPECT_EQ(second.value(1, 2), fovea::uniform_draw<double>(42, 1, 0, 1, 2) - 0.5);
  Parameter<float> rounded("rounded", 2, 3);
  Initialiser(42).uniform(rounded, 0.5);
  EXPECT_EQ(rounded.value(1, 2), static_cast<float>(first.value(1, 2)));
}

TEST(Parameter, LayersVisitParametersInAFixedOrder) {
  Initialiser initialiser(1);
  fovea::FeedForward<double> layer(3, 5, initialiser);
  std::vector<std::string> names;
  fovea::for_each_parameter(layer, [&](Parameter<double>& p) { names.push_back(p.name); });
  EXPECT_EQ(names, (std::vector<std::string>{"feed_forward.in.weight", "feed_forward.in.bias",
                                             "feed_forward.out.weight", "feed_forward.out.bias"}));
  EXPECT_EQ(fovea::parameter_count(layer), 3 * 5 + 5 + 5 * 3 + 3);
  layer.visit([](Parameter<double>& p) { p.gradient_sum().setOnes(); });
  fovea::zero_gradients(layer);
  layer.visit([](Parameter<double>& p) { EXPECT_EQ(p.gradient.squaredNorm(), 0); });
}

}  // namespace fovea_test::layers_parameter
