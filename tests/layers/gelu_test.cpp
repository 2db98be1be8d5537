// SPDX-License-Identifier: MIT
#include "fovea/layers/gelu.hpp"

#include "layers/gradient_check.hpp"

namespace fovea_test::layers_gelu {

using Layer = fovea::Gelu<double>;

/// Of a row.
std::vector<double> gelu(const std::vector<double>& x,
                         fovea::GeluForm form = fovea::GeluForm::erf) {
  const Activations from({1, 1, 1, static_cast<Index>(x.size())});
  from.fill([&](Index, Index, Index, Index d) { return x[as_size(d)]; });
  const Activations y(from.shape());
  Layer(form).forward(from.view(), y.view());
  return y.values();
}

TEST(Gelu, IsXTimesTheNormalDistributionOrItsTanhForm) {
  std::vector<double> x, exact, tanh_form;
  double most = 0;
  for (int n = 0; n < 487; ++n) {
    const double at = -9 + 0.037 * n;
    x.push_back(at);
    exact.push_back(at * std::erfc(-at / std::sqrt(2)) / 2);
    const double inner = std::sqrt(2 / std::acos(-1)) * (at + 0.044715 * at * at * at);
    tanh_form.push_back(at * (1 + std::tanh(inner)) / 2);
    most = std::max(most, std::abs(exact.back() - tanh_form.back()));
  }
  EXPECT_TRUE(close_to(gelu(x), exact, 1e-15));
  EXPECT_TRUE(close_to(gelu(x, fovea::GeluForm::tanh), tanh_form, 1e-15));
  EXPECT_LT(most, 5e-4);
  EXPECT_GT(most, 1e-4);
}

TEST(Gelu, Ends) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> y = gelu({1e300, inf, -1e5, 0, std::nan("")});
  EXPECT_EQ(y[0], 1e300);
  EXPECT_EQ(y[1], inf);
  EXPECT_NEAR(y[2], 0, 1e-25);
  EXPECT_EQ(y[3], 0);
  EXPECT_TRUE(std::isnan(y[4]));
}

TEST(Gelu, ElementsAreIndependent) {
  const std::vector<double> x = drawn({1, 1, 1, 150}, 5).values();
  const std::vector<double> y = gelu(x);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_TRUE(same_bits(gelu({x[i]}), {y[i]}));
}

TEST(Gelu, Gradients) {
  for (const fovea::GeluForm form : {fovea::GeluForm::erf, fovea::GeluForm::tanh}) {
    Layer layer(form);
    expect_layer_gradients(layer, {2, 1, 3, 70}, {2, 1, 3, 70}, alone, {.rows_on_threads = 300});
  }
}

TEST(Gelu, BackwardRefusesWhatForwardRefuses) {
  Layer layer;
  const Activations x = drawn({1, 2, 2, 3}, 5), d_y = drawn({1, 1, 2, 3}, 6), d_x({1, 1, 2, 3});
  Layer::Saved saved;
  EXPECT_EQ(refusal([&] { layer.backward(x.view(), saved, d_y.view(), d_x.view()); }),
            "Gelu: x has 2 heads; expected 1, since layers take activations [B, 1, L, width]");
}

}  // namespace fovea_test::layers_gelu
