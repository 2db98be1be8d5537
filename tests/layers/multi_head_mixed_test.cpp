// SPDX-License-Identifier: MIT
/// \file
/// MultiHead over Linformer, whose projections it learns, and over Nystroem attention.
#include "fovea/layers/multi_head.hpp"

#include "layers/gradient_check.hpp"

namespace fovea_test::layers_multi_head_mixed {

using fovea::LinformerAttention;
using fovea::MultiHead;
using fovea::MultiHeadOptions;
using fovea::NystroemAttention;

constexpr Index kWidth = 6;
constexpr Shape kX = {2, 1, 8, kWidth};
const std::vector<Index> kLengths = {8, 4};

fovea::Tokens<double> with_lengths(const View<const double>& x) { return {x, kLengths}; }

template <class Op>
MultiHead<Op, double> make(const Op& op) {
  fovea::Initialiser initialiser(3);
  const MultiHeadOptions options{.width = kWidth,
                                 .heads = 4,
                                 .key_heads = 2,
                                 .head_width = 3,
                                 .bias = true,
                                 .length = 11,
                                 .projected = 5};
  MultiHead<Op, double> layer(op, options, initialiser);
  draw_parameters(layer, 17, 0.4);
  return layer;
}

NystroemAttention nystroem() {
  fovea::NystroemOptions options;
  options.landmarks = 4;
  return NystroemAttention(options);
}

template <class Op>
void expect_all(const Op& op, double tolerance) {
  auto layer = make(op);
  expect_layer_gradients(layer, kX, kX, with_lengths, {.tolerance = tolerance});
  expect_same_bits_for_threads(layer, kX, kX, with_lengths);
}

TEST(MultiHeadMixed, Linformer) {
  auto layer = make(LinformerAttention{});
  std::vector<std::string> names;
  layer.visit([&](fovea::Parameter<double>& p) { names.push_back(p.name); });
  EXPECT_NE(std::find(names.begin(), names.end(), "key_projection"), names.end());
  EXPECT_NE(std::find(names.begin(), names.end(), "value_projection"), names.end());
  expect_all(LinformerAttention{}, 1e-7);
}

TEST(MultiHeadMixed, Nystroem) { expect_all(nystroem(), 1e-6); }

/// Columns of the projections beyond a shorter sequence have no gradient.
TEST(MultiHeadMixed, LinformerOfShorterSequences) {
  auto layer = make(LinformerAttention{});
  const Activations x = drawn(kX, 1), y(kX), d_x(kX);
  MultiHead<LinformerAttention, double>::Saved saved;
  layer.forward(fovea::Tokens<double>(x.view()), y.view(), saved);
  layer.backward(fovea::Tokens<double>(x.view()), saved, y.view(), d_x.view());
  layer.visit([&](fovea::Parameter<double>& p) {
    if (p.name.find("projection") == std::string::npos || p.value.cols() != 11) return;
    EXPECT_GT(p.gradient.leftCols(8).cwiseAbs().minCoeff(), 0) << p.name;
    EXPECT_EQ(p.gradient.rightCols(3).cwiseAbs().maxCoeff(), 0) << p.name;
  });
  const Activations longer = drawn({2, 1, 12, kWidth}, 1), out({2, 1, 12, kWidth});
  EXPECT_EQ(
      refusal([&] { layer.forward(fovea::Tokens<double>(longer.view()), out.view()); }),
      "LinformerAttention: x has 12 rows; expected at most 11, the length of the projections");
}

TEST(MultiHeadMixed, LinformerNeedsItsSizes) {
  fovea::Initialiser initialiser(3);
  using Layer = MultiHead<LinformerAttention, float>;
  EXPECT_EQ(refusal([&] { Layer(LinformerAttention{}, {.width = 6}, initialiser); }),
            "LinformerAttention: length is 0; expected at least 1");
  EXPECT_EQ(refusal([&] {
              Layer(LinformerAttention{}, {.width = 6, .length = 9, .projected = 0}, initialiser);
            }),
            "LinformerAttention: projected is 0; expected at least 1");
}

}  // namespace fovea_test::layers_multi_head_mixed
