// SPDX-License-Identifier: MIT
/// \file
/// EncoderBlock without norm_first.
#include "fovea/layers/encoder_stack.hpp"
#include "fovea/layers/gated_feed_forward.hpp"
#include "fovea/layers/rms_norm.hpp"
#include "layers/decoding.hpp"

namespace fovea_test::layers_post_norm_block {

template <class T>
using Attention = fovea::MultiHead<fovea::FullAttention, T>;
template <class T>
using Block = fovea::EncoderBlock<Attention<T>, T>;

constexpr fovea::EncoderBlockOptions kPostNorm = {.norm_first = false};
using fovea::Tokens;

constexpr Shape kShape = {2, 1, 5, 4};
const std::vector<Index> kLengths = {5, 3};

template <class T>
Block<T> block(Index width = 4) {
  fovea::Initialiser initialiser(3);
  const Attention<T> attention(fovea::FullAttention{}, {.width = width, .heads = 2}, initialiser);
  Block<T> made(attention, width, 6, initialiser, kPostNorm);
  draw_parameters(made, 5, 0.3);
  return made;
}

Tokens<double> with_lengths(const View<const double>& x) { return Tokens<double>(x, kLengths); }

/// Copies parameters from one layer to another, those whose name has the prefix.
template <class T>
void copy(const Block<T>& from, const std::string& prefix, auto& to) {
  std::vector<fovea::RowMatrix<T>> values;
  from.visit([&](const fovea::Parameter<T>& p) {
    if (p.name.find(prefix) == 0) values.push_back(p.value);
  });
  std::size_t next = 0;
  to.visit([&](fovea::Parameter<T>& p) { p.value = values.at(next++); });
  EXPECT_EQ(next, values.size());
}

/// y of the block, and of the composition of its parts.
template <class T>
std::pair<std::vector<double>, std::vector<double>> both_ways() {
  const Block<T> made = block<T>();
  fovea::Initialiser initialiser(1);
  fovea::LayerNorm<T> norm1(4);
  fovea::LayerNorm<T> norm2(4);
  fovea::FeedForward<T> feed_forward(4, 6, initialiser);
  copy(made, "norm1", norm1);
  copy(made, "norm2", norm2);
  copy(made, "feed_forward", feed_forward);
  Tensor<T> x(kShape);
  x.fill(gaussian(1, 1));
  const Tensor<T> y(kShape), a(kShape), b(kShape);
  const auto add = [](const Tensor<T>& to, const Tensor<T>& from) {
    for_each_index(kShape,
                   [&](Index n, Index h, Index i, Index c) { to(n, h, i, c) += from(n, h, i, c); });
  };
  made.forward(Tokens<T>(View<const T>(x.view()), kLengths), y.view());
  made.attention.forward(Tokens<T>(View<const T>(x.view()), kLengths), a.view());
  add(x, a);
  norm1.forward(x.view(), a.view());
  feed_forward.forward(a.view(), b.view());
  add(a, b);
  norm2.forward(a.view(), b.view());
  std::vector<double> got, expected;
  for_each_index(kShape, [&](Index n, Index h, Index i, Index c) {
    got.push_back(static_cast<double>(y(n, h, i, c)));
    expected.push_back(static_cast<double>(b(n, h, i, c)));
  });
  return {got, expected};
}

TEST(PostNormBlock, EqualsTheCompositionOfItsParts) {
  const auto [got, expected] = both_ways<double>();
  EXPECT_TRUE(close_to(got, expected, 1e-14));
  const auto [got_in_float, expected_in_float] = both_ways<float>();
  EXPECT_TRUE(close_to(got_in_float, expected_in_float, 1e-6));
  EXPECT_TRUE(close_to(got_in_float, got, 1e-5));
}

TEST(PostNormBlock, RowsOfYAreNormalised) {
  fovea::Initialiser initialiser(3);
  const Attention<double> attention(fovea::FullAttention{}, {.width = 4, .heads = 2}, initialiser);
  const Block<double> fresh(attention, 4, 6, initialiser, kPostNorm);
  const Activations x = drawn(kShape, 1);
  const Activations y(kShape);
  fresh.forward(with_lengths(x.view()), y.view());
  for (Index i = 0; i < 5; ++i) {
    double sum = 0, squares = 0;
    for (Index c = 0; c < 4; ++c) {
      sum += y(0, 0, i, c);
      squares += y(0, 0, i, c) * y(0, 0, i, c);
    }
    EXPECT_NEAR(sum, 0, 1e-12);
    EXPECT_NEAR(squares / 4, 1, 1e-3);  // but for epsilon
  }
}

TEST(PostNormBlock, Gradients) {
  Block<double> made = block<double>();
  expect_layer_gradients(made, kShape, kShape, with_lengths, {.tolerance = 1e-6});
}

TEST(PostNormBlock, GradientsWithOtherParts) {
  using Gated = fovea::GatedFeedForward<double>;
  using Other = fovea::EncoderBlock<Attention<double>, double, fovea::RmsNorm<double>, Gated>;
  fovea::Initialiser initialiser(3);
  Other made(Attention<double>(fovea::FullAttention{}, {.width = 4, .heads = 2}, initialiser),
             Gated(4, 6, initialiser), {.norm_first = false, .epsilon = 1e-3});
  draw_parameters(made, 5, 0.3);
  expect_layer_gradients(made, kShape, kShape, with_lengths, {.tolerance = 1e-6});
}

TEST(PostNormBlock, ThreadsDoNotChangeBits) {
  Block<double> made = block<double>(16);
  expect_same_bits_for_threads(made, {2, 1, 300, 16}, {2, 1, 300, 16}, alone);
}

template <class Op, class T>
using Stack = fovea::EncoderStack<fovea::EncoderBlock<fovea::MultiHead<Op, T>, T>>;

template <class T, class Op>
Stack<Op, T> make_stack(const Op& op) {
  fovea::Initialiser initialiser(1);
  Stack<Op, T> stack;
  for (int i = 0; i < 2; ++i) {
    stack.blocks.emplace_back(make_multi_head<Op, T>(op, initialiser), kDecodedWidth, 7,
                              initialiser, kPostNorm);
  }
  draw_parameters(stack, 5, 0.3);
  return stack;
}

TEST(PostNormBlock, DropoutIsBeforeTheSums) {
  constexpr double kDropout = 0.4;
  Block<double> made = block<double>();
  fovea::Initialiser initialiser(3);
  Block<double> dropping(made.attention, 4, 6, initialiser,
                         {.norm_first = false, .dropout = kDropout});
  copy(made, "", dropping);
  const auto in_training = [](const View<const double>& x) {
    Tokens<double> tokens(x, kLengths);
    tokens.training = fovea::TrainingStep{.seed = 3, .step = 7};
    return tokens;
  };
  expect_layer_gradients(dropping, kShape, kShape, in_training, {.tolerance = 1e-6});
  // Without a training step nothing is dropped.
  const Activations x = drawn(kShape, 1);
  const Activations y(kShape), kept(kShape), dropped(kShape);
  made.forward(with_lengths(x.view()), y.view());
  dropping.forward(with_lengths(x.view()), kept.view());
  dropping.forward(in_training(x.view()), dropped.view());
  EXPECT_TRUE(same_bits(kept.values(), y.values()));
  EXPECT_FALSE(same_bits(dropped.values(), y.values()));
}

TEST(PostNormBlock, GradientsInAStack) {
  auto stack = make_stack<double>(fovea::FullAttention{{.causal = true}});
  const Shape shape = {1, 1, 3, kDecodedWidth};
  expect_layer_gradients(stack, shape, shape, alone, {.tolerance = 1e-6});
}

template <class T>
void expect_decoded_bits() {
  for_each_causal_operator([](const char* name, const auto& op) {
    SCOPED_TRACE(name);
    const auto stack = make_stack<T>(op);
    Tensor<T> x({2, 1, 90, kDecodedWidth});
    x.fill(gaussian(3, 1));
    const Tensor<T> expected(x.shape());
    stack.forward(View<const T>(x.view()), expected.view());
    fovea::ThreadPool pool(3);
    const AnyExecutor three = AnyExecutor::of(pool);
    for (const auto& pieces : {std::vector<Index>{1}, {90}, {70, 1, 1, 33}}) {
      auto decoder = stack.decoder({.batch = 2, .reserve = 90});
      EXPECT_TRUE(
          same_bits(decoded(decoder, x, pieces, three).values(), expected.values(), x.shape()));
    }
  });
}

TEST(PostNormBlockDecoder, MatchesForwardBitwise) { expect_decoded_bits<double>(); }
TEST(PostNormBlockDecoder, MatchesForwardBitwiseInFloat) { expect_decoded_bits<float>(); }

}  // namespace fovea_test::layers_post_norm_block
