// SPDX-License-Identifier: MIT
/// \file
/// LayerNorm and RmsNorm: their definitions, gradients and refusals.
#include "fovea/layers/row_norm.hpp"

#include "fovea/layers/layer_norm.hpp"
#include "fovea/layers/rms_norm.hpp"
#include "layers/gradient_check.hpp"

namespace fovea_test::layers_row_norm {

using LayerNorm = fovea::LayerNorm<double>;
using RmsNorm = fovea::RmsNorm<double>;

template <class Layer>
Layer layer(Index width) {
  Layer made(width);
  draw_parameters(made, 7);
  return made;
}

/// The definition, in double.
template <class Layer>
std::vector<double> oracle(const Layer& norm, const Activations& x, double epsilon) {
  const auto width = static_cast<double>(norm.width());
  std::vector<double> expected;
  for_each_index(x.shape(), [&](Index b, Index, Index n, Index d) {
    double mean = 0;
    double square = 0;
    for (Index c = 0; Layer::kIsCentred && c < norm.width(); ++c) mean += x(b, 0, n, c) / width;
    for (Index c = 0; c < norm.width(); ++c) square += std::pow(x(b, 0, n, c) - mean, 2) / width;
    double y = (x(b, 0, n, d) - mean) / std::sqrt(square + epsilon) * norm.scale.value(0, d);
    if constexpr (Layer::kIsCentred) y += norm.shift.value(0, d);
    expected.push_back(y);
  });
  return expected;
}

template <class Layer>
class RowNorm : public testing::Test {
 protected:
  static constexpr double kEpsilon = Layer::kIsCentred ? 1e-5 : 1e-6;
};
using Layers = testing::Types<LayerNorm, RmsNorm>;
TYPED_TEST_SUITE(RowNorm, Layers);

TYPED_TEST(RowNorm, MatchesItsDefinition) {
  for (const Index width : {1, 3, 16, 37, 70}) {
    const TypeParam norm = layer<TypeParam>(width);
    const Activations x = drawn({2, 1, 5, width}, 1);
    const Activations y({2, 1, 5, width}, {.gap = 2});
    norm.forward(x.view(), y.view());
    EXPECT_TRUE(close_to(y.values(), oracle(norm, x, this->kEpsilon), 1e-12)) << width;
    EXPECT_EQ(y.changed_gaps(), 0);
  }
}

/// Rows far from 1, down to those that epsilon alone divides.
TEST(RmsNorm, OfHugeAndTinyRows) {
  const RmsNorm norm = layer<RmsNorm>(37);
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
  const RmsNorm norm(5, {.epsilon = 0.25});
  const Activations x = drawn({1, 1, 3, 5}, 1);
  const Activations y(x.shape());
  norm.forward(x.view(), y.view());
  EXPECT_TRUE(close_to(y.values(), oracle(norm, x, 0.25), 1e-14));
}

TEST(LayerNorm, ARowOfZerosGivesTheShift) {
  const LayerNorm norm = layer<LayerNorm>(21);
  const Activations x = filled({1, 1, 1, 21}, 0);
  const Activations y(x.shape());
  norm.forward(x.view(), y.view());
  const double* const shift = norm.shift.value.data();
  EXPECT_TRUE(same_bits(y.values(), std::vector<double>(shift, shift + 21)));
}

TEST(RmsNorm, ARowOfZerosGivesZeros) {
  RmsNorm norm = layer<RmsNorm>(21);
  const Activations x = filled({1, 1, 1, 21}, 0);
  const Activations y(x.shape()), d_x(x.shape());
  RmsNorm::Saved saved;
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

TYPED_TEST(RowNorm, Gradients) {
  for (const Index width : {2, 19}) {
    TypeParam norm = layer<TypeParam>(width);
    expect_layer_gradients(norm, {2, 1, 3, width}, {2, 1, 3, width}, alone,
                           {.rows_on_threads = 300});
  }
}

TYPED_TEST(RowNorm, Refusals) {
  const std::string name = TypeParam::name();
  EXPECT_EQ(refusal([] { TypeParam(3, {.epsilon = 0}); }),
            name + ": epsilon is 0; expected more than 0");
  EXPECT_EQ(refusal([] { TypeParam(0); }), name + ": the width of x is 0; expected at least 1");
}

}  // namespace fovea_test::layers_row_norm
