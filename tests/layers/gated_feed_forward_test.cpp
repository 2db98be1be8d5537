// SPDX-License-Identifier: MIT
#include "fovea/layers/gated_feed_forward.hpp"

#include "fovea/layers/encoder_stack.hpp"
#include "fovea/layers/rms_norm.hpp"
#include "layers/decoding.hpp"

namespace fovea_test::layers_gated_feed_forward {

using fovea::GatedFeedForward;
using fovea::GateKind;

GatedFeedForward<double> made(GateKind gate, bool bias, Index width = 4, Index hidden = 5) {
  fovea::Initialiser initialiser(1);
  GatedFeedForward<double> layer(width, hidden, initialiser, {.gate = gate, .bias = bias});
  draw_parameters(layer, 5);
  return layer;
}

TEST(GatedFeedForward, MatchesItsDefinition) {
  GatedFeedForward<double> layer = made(GateKind::silu, true);
  std::vector<fovea::RowMatrix<double>> w;
  std::vector<std::string> names;
  layer.visit([&](const std::string& name, fovea::Parameter<double>& p) {
    w.push_back(p.value);
    names.push_back(name);
  });
  EXPECT_EQ(names,
            (std::vector<std::string>{"feed_forward.gate_up.weight", "feed_forward.gate_up.bias",
                                      "feed_forward.down.weight", "feed_forward.down.bias"}));
  const Activations x = drawn({2, 1, 3, 4}, 1);
  const Activations y(x.shape());
  layer.forward(x.view(), y.view());
  for (Index b = 0; b < 2; ++b) {
    for (Index n = 0; n < 3; ++n) {
      double expected[4];
      for (Index c = 0; c < 4; ++c) expected[c] = w[3](0, c);
      for (Index i = 0; i < 5; ++i) {
        double gate = w[1](0, i), up = w[1](0, 5 + i);
        for (Index c = 0; c < 4; ++c) {
          gate += x(b, 0, n, c) * w[0](c, i);
          up += x(b, 0, n, c) * w[0](c, 5 + i);
        }
        for (Index c = 0; c < 4; ++c) {
          expected[c] += gate / (1 + std::exp(-gate)) * up * w[2](i, c);
        }
      }
      for (Index c = 0; c < 4; ++c) EXPECT_NEAR(y(b, 0, n, c), expected[c], 1e-12);
    }
  }
}

TEST(GatedFeedForward, Gradients) {
  for (const GateKind gate : {GateKind::silu, GateKind::gelu, GateKind::gelu_tanh}) {
    for (const bool bias : {false, true}) {
      GatedFeedForward<double> layer = made(gate, bias);
      expect_layer_gradients(layer, {2, 1, 3, 4}, {2, 1, 3, 4}, alone, {.tolerance = 1e-6});
    }
  }
}

TEST(GatedFeedForward, ThreadsDoNotChangeBits) {
  GatedFeedForward<double> layer = made(GateKind::silu, false, 16, 40);
  expect_same_bits_for_threads(layer, {2, 1, 300, 16}, {2, 1, 300, 16}, alone);
}

TEST(GatedFeedForward, Refusals) {
  fovea::Initialiser initialiser(1);
  EXPECT_NE(refusal([&] { GatedFeedForward<float>(4, 0, initialiser); }), "accepted");
}

/// The layers of Llama-like models.
template <class T>
using LlamaBlock = fovea::EncoderBlock<fovea::MultiHead<fovea::FullAttention, T>, T,
                                       fovea::RmsNorm<T>, GatedFeedForward<T>>;

template <class T>
fovea::EncoderStack<LlamaBlock<T>> llama() {
  fovea::Initialiser initialiser(1);
  fovea::EncoderStack<LlamaBlock<T>> stack;
  for (int i = 0; i < 2; ++i) {
    stack.blocks.emplace_back(
        fovea::MultiHead<fovea::FullAttention, T>(fovea::FullAttention{{.causal = true}},
                                                  {.width = kDecodedWidth,
                                                   .heads = 6,
                                                   .key_heads = 2,
                                                   .head_width = 4,
                                                   .rotary = fovea::RotaryOptions{}},
                                                  initialiser),
        kDecodedWidth, 9, initialiser);
  }
  draw_parameters(stack, 7, 0.3);
  return stack;
}

TEST(LlamaBlocks, Gradients) {
  auto stack = llama<double>();
  const Shape shape = {1, 1, 3, kDecodedWidth};
  expect_layer_gradients(stack, shape, shape, alone, {.tolerance = 1e-6});
}

TEST(LlamaBlocks, DecodingEqualsForwardBitwise) {
  expect_decoded_bits(llama<double>(), some_tokens<double>(2, 60), {{1}, {40, 1, 1}});
  expect_decoded_bits(llama<float>(), some_tokens<float>(2, 60), {{1}, {40, 1, 1}});
}

}  // namespace fovea_test::layers_gated_feed_forward
