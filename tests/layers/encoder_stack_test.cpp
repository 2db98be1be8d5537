// SPDX-License-Identifier: MIT
// fovea_test(HEAP)
#include "fovea/layers/encoder_stack.hpp"

#include <optional>

#include "layers/decoding.hpp"
#include "support/failing_allocations.hpp"

namespace fovea_test::layers_encoder_stack {

constexpr Index kWidth = kDecodedWidth;

template <class Op, class T>
using Stack = fovea::EncoderStack<fovea::EncoderBlock<fovea::MultiHead<Op, T>, T>>;

template <class T, class Op>
Stack<Op, T> make_stack(const Op& op, int blocks, bool norm_first = true) {
  fovea::Initialiser initialiser(1);
  Stack<Op, T> stack;
  for (int i = 0; i < blocks; ++i) {
    stack.blocks.emplace_back(make_multi_head<Op, T>(op, initialiser), kWidth, 7, initialiser,
                              fovea::EncoderBlockOptions{.norm_first = norm_first});
  }
  draw_parameters(stack, 5, 0.3);
  return stack;
}

const fovea::FullAttention kCausal{{.causal = true}};

TEST(EncoderStack, EqualsTheCompositionOfItsBlocks) {
  for (const int blocks : {0, 1, 2, 3}) {
    const auto stack = make_stack<double>(kCausal, blocks);
    Activations x = drawn({2, 1, 9, kWidth}, 1);
    const Activations y(x.shape());
    stack.forward(View<const double>(x.view()), y.view());
    for (const auto& block : stack.blocks) {
      const Activations next(x.shape());
      block.forward(View<const double>(x.view()), next.view());
      for_each_index(x.shape(),
                     [&](Index b, Index h, Index n, Index c) { x(b, h, n, c) = next(b, h, n, c); });
    }
    EXPECT_TRUE(same_bits(y.values(), x.values()));
  }
}

TEST(EncoderStack, Gradients) {
  for (const int blocks : {0, 1, 2, 3}) {
    for (const bool norm_first : {true, false}) {
      auto stack = make_stack<double>(kCausal, blocks, norm_first);
      const Shape shape = {1, 1, 3, kWidth};
      expect_layer_gradients(stack, shape, shape, alone,
                             {.tolerance = 1e-6, .rows_on_threads = blocks == 2 ? 300 : 0});
    }
  }
}

TEST(EncoderStack, BackwardRequiresSavedTensors) {
  auto stack = make_stack<double>(kCausal, 2);
  const Activations x = drawn({1, 1, 3, kWidth}, 1);
  const Activations y(x.shape());
  Stack<fovea::FullAttention, double>::Saved saved;
  EXPECT_EQ(
      refusal([&] { stack.backward(View<const double>(x.view()), saved, x.view(), y.view()); }),
      "EncoderStack: saved has 0 blocks; expected 2, from the forward pass of this stack");
}

template <class T>
void expect_decoded_stacks() {
  for_each_causal_operator([&](const char* name, const auto& op) {
    SCOPED_TRACE(name);
    for (const bool norm_first : {true, false}) {
      expect_decoded_bits(make_stack<T>(op, 2, norm_first), some_tokens<T>(2, 90),
                          {{1}, {90}, {70, 1, 1, 33}});
    }
  });
}

TEST(EncoderStackDecoder, MatchesForwardBitwise) { expect_decoded_stacks<double>(); }
TEST(EncoderStackDecoder, MatchesForwardBitwiseInFloat) { expect_decoded_stacks<float>(); }

TEST(EncoderStackDecoder, ForksAreIndependentAndTokensAreRolledBack) {
  expect_forks_and_rollback(make_stack<double>(kCausal, 3));
}

TEST(EncoderStackDecoder, AllBlocksHaveTheSameTokensAfterAFailure) {
  const auto stack = make_stack<double>(kCausal, 2);
  const Activations x = drawn({1, 1, 40, kWidth}, 3);
  const Activations expected(x.shape());
  stack.forward(View<const double>(x.view()), expected.view());
  const Activations y(x.shape());
  std::optional<decltype(stack.decoder())> decoder;
  const auto step = [&](Index first, Index count) {
    decoder->step(rows_from(x.view(), first, count), rows_from(y.view(), first, count));
  };
  int failures = 0;
  fail_each_allocation(
      [&] {
        decoder.emplace(stack.decoder());
        step(0, 5);
      },
      [&] { step(5, 35); },
      [&] {
        ++failures;
        const Index length = decoder->length();
        ASSERT_TRUE(length == 0 || length == 5) << length;
        step(length, 40 - length);
        for (Index n = length; n < 40; ++n) {
          for (Index c = 0; c < kWidth; ++c) ASSERT_EQ(y(0, 0, n, c), expected(0, 0, n, c));
        }
      },
      [&] { EXPECT_EQ(decoder->length(), 40); });
  EXPECT_GT(failures, 5);
}

}  // namespace fovea_test::layers_encoder_stack
