// SPDX-License-Identifier: MIT
#include "fovea/layers/gated_feed_forward.hpp"

#include "fovea/layers/encoder_stack.hpp"
#include "fovea/layers/rms_norm.hpp"
#include "layers/by_hand.hpp"
#include "layers/decoding.hpp"

namespace fovea_test::layers_gated_feed_forward {

using fovea::GatedFeedForward;
using fovea::GateKind;

GatedFeedForward<double> made(GateKind gate, bool bias) {
  fovea::Initialiser initialiser(1);
  GatedFeedForward<double> layer(4, 5, initialiser, {.gate = gate, .bias = bias});
  draw_parameters(layer, 5);
  return layer;
}

TEST(GatedFeedForward, MatchesItsDefinition) {
  GatedFeedForward<double> layer = made(GateKind::silu, true);
  const Weights weights = weights_of(layer);
  ASSERT_EQ(weights.size(), 4u);
  const Activations x = drawn({2, 1, 3, 4}, 1);
  const Activations y(x.shape());
  layer.forward(x.view(), y.view());
  const Activations gate = projected(x, weights, "feed_forward.gate_up", 0, 1, 5);
  const Activations up = projected(x, weights, "feed_forward.gate_up", 5, 1, 5);
  up.fill([&](Index b, Index h, Index n, Index d) {
    return gate(b, h, n, d) * logistic(gate(b, h, n, d)) * up(b, h, n, d);
  });
  const Activations expected = projected(up, weights, "feed_forward.down", 0, 1, 4);
  EXPECT_TRUE(close_to(y.values(), expected.values(), 1e-12));
}

TEST(GatedFeedForward, Gradients) {
  for (const GateKind gate : {GateKind::silu, GateKind::gelu, GateKind::gelu_tanh}) {
    for (const bool bias : {false, true}) {
      GatedFeedForward<double> layer = made(gate, bias);
      expect_layer_gradients(layer, {2, 1, 3, 4}, {2, 1, 3, 4}, alone,
                             {.tolerance = 1e-6, .rows_on_threads = 300});
    }
  }
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
