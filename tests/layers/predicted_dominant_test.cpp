// SPDX-License-Identifier: MIT
#include "fovea/layers/predicted_dominant.hpp"

#include "layers/gradient_check.hpp"

namespace fovea_test::layers_predicted_dominant {

using Weights = fovea::RowMatrix<double>;

TEST(PredictedDominant, IsEquation9) {
  const Activations hidden = drawn({2, 1, 5, 3}, 1);
  const Weights weight = Weights::Random(3, 8), bias = Weights::Random(1, 8);
  const Activations dominant({2, 1, 5, 8});
  fovea::predict_dominant<double>(hidden.view(), weight, bias, 100, dominant.view());
  for_each_index(dominant.shape(), [&](Index b, Index, Index j, Index c) {
    double z = bias(0, c);
    for (Index i = 0; i < 3; ++i) z += hidden(b, 0, j, i) * weight(i, c);
    EXPECT_NEAR(dominant(b, 0, j, c), 100 / (1 + std::exp(-z)), 1e-12);
  });
  // Slot m of head h is column h M + m, as the operator reads it.
  const View<double> heads = fovea::as_heads(dominant.view(), 0, 2, 4);
  EXPECT_EQ(heads(1, 1, 3, 2), dominant(1, 0, 3, 6));
}

TEST(PredictedDominant, Refusals) {
  const Activations hidden = drawn({2, 1, 5, 3}, 1);
  const Weights weight = Weights::Random(3, 8), bias = Weights::Random(1, 8);
  const Activations dominant({2, 1, 5, 8}), narrow({2, 1, 5, 7});
  const auto message = [&](const Weights& b, Index most, const Activations& to) {
    return refusal(
        [&] { fovea::predict_dominant<double>(hidden.view(), weight, b, most, to.view()); });
  };
  EXPECT_EQ(message(bias, 0, dominant), "predict_dominant: max_length is 0; expected at least 1");
  EXPECT_EQ(message(bias, 9, narrow),
            "predict_dominant: dominant has width 7; expected 8, the width of the layer");
  EXPECT_EQ(message(Weights::Zero(1, 7), 9, dominant),
            "predict_dominant: the size of bias is 7; expected 8, the columns of weight");
  EXPECT_EQ(message(bias, 9, dominant), "accepted");
}

}  // namespace fovea_test::layers_predicted_dominant
