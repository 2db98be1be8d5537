// SPDX-License-Identifier: MIT
#include "fovea/layers/adam.hpp"

#include <cmath>

#include "layers/gradient_check.hpp"

namespace fovea_test::layers_adam {

using fovea::Adam;
using fovea::AdamOptions;
using fovea::Parameter;

/// Two weights and a bias.
struct Model {
  Parameter<double> weight{"weight", 2, 1};
  Parameter<double> bias{"bias", 1, 1};

  template <class F>
  void visit(F&& f) {
    f(weight);
    f(bias);
  }
  /// Their gradients in step t.
  void set_gradients(int t) {
    weight.gradient_sum() << std::sin(1.0 * t), 3 - t;
    bias.gradient_sum() << 0.25 * t;
  }
  std::vector<double> values() const {
    return {weight.value(0, 0), weight.value(1, 0), bias.value(0, 0)};
  }
};

/// Another model.
struct OneWeight {
  Parameter<double> weight{"weight", 2, 1};

  template <class F>
  void visit(F&& f) {
    f(weight);
  }
};

/// Algorithm 1 of the paper for one number, line by line.
struct Textbook {
  double theta = 0;
  double m = 0;
  double v = 0;

  void step(double g, int t, double rate, double decay) {
    const double before = theta;
    m = 0.9 * m + (1 - 0.9) * g;
    v = 0.999 * v + (1 - 0.999) * g * g;
    const double m_hat = m / (1 - std::pow(0.9, t));
    const double v_hat = v / (1 - std::pow(0.999, t));
    theta = before - rate * m_hat / (std::sqrt(v_hat) + 1e-8) - rate * decay * before;
  }
};

void expect_textbook(const AdamOptions& options) {
  Model model;
  model.weight.value << 0.5, -1.5;
  model.bias.value << 2;
  std::vector<Textbook> expected = {{0.5}, {-1.5}, {2}};
  Adam<double> adam(options);
  for (int t = 1; t <= 6; ++t) {
    model.set_gradients(t);
    const std::vector<double> g = {model.weight.gradient(0, 0), model.weight.gradient(1, 0),
                                   model.bias.gradient(0, 0)};
    const double norm = std::sqrt(g[0] * g[0] + g[1] * g[1] + g[2] * g[2]);
    const double share =
        options.clip_norm && norm > *options.clip_norm ? *options.clip_norm / norm : 1;
    EXPECT_NEAR(adam.step(model), norm, 1e-14);
    for (std::size_t i = 0; i < 3; ++i) {
      expected[i].step(g[i] * share, t, options.learning_rate, i < 2 ? options.weight_decay : 0);
    }
    EXPECT_TRUE(
        close_to(model.values(), {expected[0].theta, expected[1].theta, expected[2].theta}, 1e-14));
  }
  EXPECT_EQ(adam.steps(), 6);
}

TEST(Adam, MatchesTheTextbook) { expect_textbook({.learning_rate = 0.1}); }
TEST(Adam, Decays) { expect_textbook({.learning_rate = 0.1, .weight_decay = 0.3}); }
TEST(Adam, Clips) { expect_textbook({.learning_rate = 0.1, .clip_norm = 1.5}); }

/// So many weights that they are several tasks.
struct Large {
  Parameter<double> weight{"weight", 300, 100};
  template <class F>
  void visit(F&& f) {
    f(weight);
  }
};

TEST(Adam, ThreadsDoNotChangeBits) {
  const auto run = [](auto&& executor) {
    Large model;
    draw_parameters(model, 1);
    Adam<double> adam;
    for (int t = 0; t < 3; ++t) {
      model.weight.gradient = model.weight.value;
      adam.step(model, executor);
    }
    const double* const w = model.weight.value.data();
    return std::vector<double>(w, w + model.weight.value.size());
  };
  fovea::ThreadPool pool(3);
  const AnyExecutor three = AnyExecutor::of(pool);
  EXPECT_TRUE(same_bits(run(three), run(fovea::Serial{})));
}

TEST(Adam, Refusals) {
  const auto with = [](const AdamOptions& options) {
    Model model;
    Adam<double> adam(options);
    return refusal([&] { adam.step(model); });
  };
  EXPECT_EQ(with({.learning_rate = -1e-3}),
            "Adam: learning_rate is -0.001; expected a finite number of at least 0");
  EXPECT_EQ(with({.learning_rate = std::nan("")}),
            "Adam: learning_rate is nan; expected a finite number of at least 0");
  EXPECT_EQ(with({.weight_decay = -0.5}),
            "Adam: weight_decay is -0.5; expected a finite number of at least 0");
  EXPECT_EQ(with({.beta1 = 1}), "Adam: beta1 is 1; expected at least 0 and less than 1");
  EXPECT_EQ(with({.epsilon = 0}), "Adam: epsilon is 0; expected more than 0");
  EXPECT_EQ(with({.clip_norm = 0.0}), "Adam: clip_norm is 0; expected more than 0");
  Model model;
  Adam<double> adam;
  EXPECT_EQ(refusal([&] { adam.set_steps(-1); }),
            "Adam: the number of steps is -1; expected at least 0");
  adam.step(model);
  OneWeight other;
  EXPECT_EQ(refusal([&] { adam.step(other); }),
            "Adam: the number of parameters is 1; expected 2, as in the first step");
  EXPECT_EQ(adam.steps(), 1);
  model.weight = Parameter<double>("weight", 3, 1);
  EXPECT_EQ(refusal([&] { adam.step(model); }),
            "Adam: the size of weight is 3; expected 2, as in the first step");
}

}  // namespace fovea_test::layers_adam
