// SPDX-License-Identifier: MIT
/// \file
/// The projections of keys that MultiHead learns over Linformer, of sequences of other lengths.
#include "fovea/layers/learned_projections.hpp"

#include "fovea/attention/linformer.hpp"
#include "fovea/layers/multi_head.hpp"
#include "layers/gradient_check.hpp"

namespace fovea_test::layers_learned_projections {

using fovea::LinformerAttention;
using Layer = fovea::MultiHead<LinformerAttention, double>;

Layer make(Index length, Index projected) {
  fovea::Initialiser initialiser(3);
  Layer layer(LinformerAttention{},
              {.width = 6, .heads = 2, .length = length, .projected = projected}, initialiser);
  draw_parameters(layer, 17, 0.4);
  return layer;
}

/// Columns of the projections beyond a shorter sequence have no gradient.
TEST(LearnedProjections, OfShorterSequences) {
  Layer layer = make(11, 5);
  const Activations x = drawn({2, 1, 8, 6}, 1), y(x.shape()), d_x(x.shape());
  Layer::Saved saved;
  layer.forward(x.view(), y.view(), saved);
  layer.backward(x.view(), saved, y.view(), d_x.view());
  int projections = 0;
  layer.visit([&](fovea::Parameter<double>& p) {
    if (p.name != "key_projection" && p.name != "value_projection") return;
    ++projections;
    EXPECT_GT(p.gradient.leftCols(8).cwiseAbs().minCoeff(), 0) << p.name;
    EXPECT_EQ(p.gradient.rightCols(3).cwiseAbs().maxCoeff(), 0) << p.name;
  });
  EXPECT_EQ(projections, 2);
}

TEST(LearnedProjections, Refusals) {
  const Activations longer = drawn({2, 1, 12, 6}, 1), out(longer.shape());
  EXPECT_EQ(
      refusal([&] { make(11, 5).forward(longer.view(), out.view()); }),
      "LinformerAttention: x has 12 rows; expected at most 11, the length of the projections");
  EXPECT_EQ(refusal([] { make(0, 3); }), "LinformerAttention: length is 0; expected at least 1");
  EXPECT_EQ(refusal([] { make(9, 0); }), "LinformerAttention: projected is 0; expected at least 1");
}

}  // namespace fovea_test::layers_learned_projections
