// SPDX-License-Identifier: MIT
#include "fovea/attention/full.hpp"
#include "fovea/layers/multi_head.hpp"
#include "layers/tiny_model.hpp"

namespace fovea_test::layers_training {

template <class Op>
void expect_op_learns(const Op& op) {
  using Layer = fovea::MultiHead<Op, double>;
  fovea::Initialiser initialiser(1);
  const Layer layer(op, {.width = 8, .heads = 2}, initialiser);
  expect_learning(layer, 80, [](Layer& /*layer*/, int /*step*/) {});
}

TEST(Training, FullAttention) { expect_op_learns(fovea::FullAttention{}); }
TEST(Training, LinearAttention) { expect_op_learns(fovea::LinearAttention<fovea::EluPlusOne>{}); }
TEST(Training, FmmFastWeight) {
  expect_op_learns(fovea::FmmFastWeight{{.band = fovea::Band::causal_total(3)}});
}
TEST(Training, SmartBird) { expect_op_learns(fovea::SmartBirdAttention{{.keys_per_row = 4}}); }

}  // namespace fovea_test::layers_training
