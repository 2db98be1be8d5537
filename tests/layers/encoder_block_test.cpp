// SPDX-License-Identifier: MIT
#include "fovea/layers/encoder_block.hpp"

#include "fovea/attention/full.hpp"
#include "fovea/layers/multi_head.hpp"
#include "layers/gradient_check.hpp"

namespace fovea_test::layers_encoder_block {

using Attention = fovea::MultiHead<fovea::FullAttention, double>;
using Block = fovea::EncoderBlock<Attention, double>;
using fovea::Tokens;

constexpr Shape kShape = {2, 1, 5, 4};
const std::vector<Index> kLengths = {5, 3};

Block block(Index width = 4) {
  fovea::Initialiser initialiser(3);
  const Attention attention(fovea::FullAttention{}, {.width = width, .heads = 2}, initialiser);
  Block made(attention, width, 6, initialiser);
  draw_parameters(made, 5, 0.3);
  return made;
}

Tokens<double> with_lengths(const View<const double>& x) { return Tokens<double>(x, kLengths); }

/// Copies parameters from one layer to another, those whose name has the prefix.
void copy(Block& from, const std::string& prefix, auto& to) {
  std::vector<fovea::RowMatrix<double>> values;
  from.visit([&](fovea::Parameter<double>& p) {
    if (p.name.find(prefix) == 0) values.push_back(p.value);
  });
  std::size_t next = 0;
  to.visit([&](fovea::Parameter<double>& p) { p.value = values.at(next++); });
  EXPECT_EQ(next, values.size());
}

TEST(EncoderBlock, EqualsTheCompositionOfItsParts) {
  Block made = block();
  fovea::Initialiser initialiser(1);
  fovea::LayerNorm<double> norm1(4);
  fovea::LayerNorm<double> norm2(4);
  fovea::FeedForward<double> feed_forward(4, 6, initialiser);
  copy(made, "norm1", norm1);
  copy(made, "norm2", norm2);
  copy(made, "feed_forward", feed_forward);
  const Activations x = drawn(kShape, 1);
  const Activations y(kShape);
  made.forward(with_lengths(x.view()), y.view());
  const Activations a(kShape);
  const Activations b(kShape);
  const auto add = [](const Activations& to, const Activations& from) {
    for_each_index(kShape,
                   [&](Index n, Index h, Index i, Index c) { to(n, h, i, c) += from(n, h, i, c); });
  };
  norm1.forward(x.view(), a.view());
  made.attention.forward(with_lengths(a.view()), b.view());
  add(x, b);
  norm2.forward(x.view(), a.view());
  feed_forward.forward(a.view(), b.view());
  add(x, b);
  EXPECT_TRUE(close_to(y.values(), x.values(), 1e-14));
}

TEST(EncoderBlock, Gradients) {
  Block made = block();
  expect_layer_gradients(made, kShape, kShape, with_lengths, {.tolerance = 1e-6});
}

TEST(EncoderBlock, ThreadsDoNotChangeBits) {
  Block made = block(16);
  expect_same_bits_for_threads(made, {2, 1, 300, 16}, {2, 1, 300, 16}, alone);
}

}  // namespace fovea_test::layers_encoder_block
