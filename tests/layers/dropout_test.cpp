// SPDX-License-Identifier: MIT
#include "fovea/layers/dropout.hpp"

#include "fovea/attention/full.hpp"
#include "fovea/attention/modified.hpp"
#include "fovea/layers/encoder_stack.hpp"
#include "fovea/layers/multi_head.hpp"
#include "layers/by_hand.hpp"
#include "layers/decoding.hpp"

namespace fovea_test::layers_dropout {

using fovea::DropoutLayer;
using fovea::DropoutPlace;
using fovea::Tokens;
using fovea::TrainingStep;

constexpr TrainingStep kStep = {.seed = 5, .step = 8, .layer = 2};

template <class T>
Tokens<T> in_training(const View<const T>& x, const TrainingStep& step = kStep) {
  Tokens<T> tokens(x);
  tokens.training = step;
  return tokens;
}

/// The output for ones.
template <class T = double>
std::vector<T> factors(const DropoutLayer<T>& layer, const Shape& shape, const TrainingStep& step) {
  Tensor<T> x(shape), y(shape);
  x.fill(constant(1));
  layer.forward(in_training<T>(x.view(), step), y.view());
  return y.values();
}

double share_that_differs(const std::vector<double>& a, const std::vector<double>& b) {
  Index count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
  return static_cast<double>(count) / static_cast<double>(a.size());
}

TEST(DropoutLayer, DropsByTheDrawsOfItsPosition) {
  const Shape shape = {2, 1, 50, 101};
  const std::uint64_t seed = fovea::dropout_seed(kStep, DropoutPlace::after_attention);
  for (const double p : {0.1, 0.3, 0.9}) {
    const DropoutLayer<double> layer(p, DropoutPlace::after_attention);
    const std::vector<double> got = factors(layer, shape, kStep);
    std::size_t at = 0;
    for_each_index(shape, [&](Index b, Index, Index n, Index c) {
      const auto words = fovea::philox4x32_10(
          {static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(n),
           static_cast<std::uint32_t>(c / 4), 0},
          {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
      const bool drops = fovea::open_unit_float(words[static_cast<std::size_t>(c % 4)]) < p;
      EXPECT_EQ(got[at++], drops ? 0 : 1 / (1 - p));
    });
  }
}

TEST(DropoutLayer, DependsOnStepSeedLayerAndPosition) {
  const Shape shape = {1, 1, 100, 40};
  const DropoutLayer<double> layer(0.5);
  const std::vector<double> got = factors(layer, shape, kStep);
  EXPECT_EQ(factors(layer, shape, kStep), got);
  TrainingStep step = kStep, seed = kStep, number = kStep;
  ++step.step;
  ++seed.seed;
  ++number.layer;
  for (const TrainingStep& other : {step, seed, number}) {
    EXPECT_NEAR(share_that_differs(factors(layer, shape, other), got), 0.5, 0.04);
  }
  const DropoutLayer<double> elsewhere(0.5, DropoutPlace::after_feed_forward);
  EXPECT_NEAR(share_that_differs(factors(elsewhere, shape, kStep), got), 0.5, 0.04);
}

TEST(DropoutLayer, FloatDropsTheSame) {
  const Shape shape = {2, 1, 9, 33};
  const std::vector<float> narrow = factors(DropoutLayer<float>(0.4), shape, kStep);
  const std::vector<double> wide = factors(DropoutLayer<double>(0.4), shape, kStep);
  for (std::size_t i = 0; i < wide.size(); ++i) EXPECT_EQ(narrow[i], static_cast<float>(wide[i]));
}

TEST(DropoutLayer, EvaluationChangesNothing) {
  const Activations x = drawn({2, 1, 5, 7}, 3);
  const Activations y(x.shape());
  DropoutLayer<double>(0.5).forward(x.view(), y.view());
  EXPECT_TRUE(same_bits(y.values(), x.values()));
  DropoutLayer<double>(0).forward(in_training<double>(x.view()), y.view());
  EXPECT_TRUE(same_bits(y.values(), x.values()));
  EXPECT_FALSE(DropoutLayer<double>(0.5).drops({}));
  EXPECT_FALSE(DropoutLayer<double>(0).drops(kStep));
  EXPECT_TRUE(DropoutLayer<double>(0.5).drops(kStep));
}

TEST(DropoutLayer, Gradients) {
  DropoutLayer<double> layer(0.5);
  const auto input = [](const View<const double>& x) { return in_training<double>(x); };
  expect_layer_gradients(layer, {2, 1, 4, 6}, {2, 1, 4, 6}, input, {.rows_on_threads = 300});
}

TEST(DropoutLayer, RefusesLayoutsInPlace) {
  const Activations x = filled({1, 1, 3, 4}, 1);
  const View<double> columns(x.view().data(), {1, 1, 4, 3}, {12, 12, 1, 4});
  const View<double> one_row(x.view().data(), {1, 1, 3, 4}, {12, 12, 0, 1});
  const fovea::DropoutLayer<double> layer(0.5);
  const fovea::TrainingStep step{.step = 1};
  fovea::Buffer<double> room;
  EXPECT_NE(refusal([&] { layer.drop(step, columns, fovea::Serial{}); }).find("stride of width"),
            std::string::npos);
  EXPECT_NE(refusal([&] { layer.drop(step, one_row, fovea::Serial{}); }).find("x has strides"),
            std::string::npos);
  EXPECT_NE(
      refusal([&] {
        static_cast<void>(layer.gradient(step, View<const double>(columns), room, fovea::Serial{}));
      }).find("stride of width"),
      std::string::npos);
  for (const double element : x.values()) EXPECT_EQ(element, 1);
}

TEST(DropoutLayer, Refusals) {
  EXPECT_EQ(refusal([] { DropoutLayer<float>(1.0); }),
            "DropoutLayer: probability is 1; expected at least 0 and less than 1");
  EXPECT_EQ(refusal([] { DropoutLayer<float>(-0.5); }),
            "DropoutLayer: probability is -0.5; expected at least 0 and less than 1");
  EXPECT_EQ(refusal([] { DropoutLayer<float>(std::nan("")); }),
            "DropoutLayer: probability is nan; expected at least 0 and less than 1");
}

template <class Op>
using Block = fovea::EncoderBlock<fovea::MultiHead<Op, double>, double>;

constexpr Shape kShape = {2, 1, 5, 4};

template <class Op>
fovea::MultiHead<Op, double> multi_head(const Op& op) {
  fovea::Initialiser initialiser(3);
  fovea::MultiHead<Op, double> made(op, {.width = 4, .heads = 2}, initialiser);
  draw_parameters(made, 7, 0.4);
  return made;
}

fovea::FullAttention full(double dropout, std::uint64_t seed = 0) {
  return fovea::FullAttention{{.causal = true, .dropout = {.probability = dropout, .seed = seed}}};
}

Block<fovea::FullAttention> block(double dropout) {
  fovea::Initialiser initialiser(3);
  Block<fovea::FullAttention> made(multi_head(full(dropout)), 4, 6, initialiser,
                                   {.dropout = dropout});
  draw_parameters(made, 5, 0.3);
  return made;
}

fovea::EncoderStack<Block<fovea::FullAttention>> stack(double dropout) {
  return fovea::EncoderStack<Block<fovea::FullAttention>>(
      {block(dropout), block(dropout), block(dropout)});
}

template <class Layer>
std::vector<double> output(const Layer& layer, const Tokens<double>& tokens) {
  const Activations y(tokens.x.shape());
  layer.forward(tokens, y.view());
  return y.values();
}

/// The draws of weights are those of the step, the place and the operator's own seed.
TEST(AttentionDropout, EqualsTheOperators) {
  const Activations x = drawn(kShape, 1);
  for (const std::uint64_t own : {std::uint64_t{0}, std::uint64_t{9}}) {
    const auto layer = multi_head(full(0.4, own));
    auto by_hand = multi_head(full(0.4, 0));
    const Weights weights = weights_of(by_hand);
    const auto [q, k, v] = heads_of(x, weights, "qkv", 2, 2, 2);
    const Activations out({2, 2, 5, 2});
    full(0.4, fovea::dropout_seed(kStep, DropoutPlace::weights) ^ own)
        .forward({q.view(), k.view(), v.view()}, out.view());
    const Activations expected = projected(side_by_side(out), weights, "out", 0, 1, 4);
    EXPECT_TRUE(close_to(output(layer, in_training<double>(x.view())), expected.values(), 1e-13));
  }
}

struct Half {
  double value(double z, fovea::ScorePair) const noexcept { return z / 2; }
  double derivative(double, fovea::ScorePair) const noexcept { return 0.5; }
};

/// Of an operator that modifies another one it is the option of that one.
TEST(AttentionDropout, OfAModifiedOperator) {
  const Activations x = drawn(kShape, 1);
  const auto dropping = multi_head(fovea::ModifiedAttention(full(0.4), Half()));
  const auto plain = multi_head(fovea::ModifiedAttention(full(0), Half()));
  EXPECT_TRUE(same_bits(output(dropping, x.view()), output(plain, x.view())));
  EXPECT_FALSE(same_bits(output(dropping, in_training<double>(x.view())), output(plain, x.view())));
}

TEST(AttentionDropout, ProbabilitiesOutOfRangeAreRefusedInEvaluationToo) {
  const Activations x = drawn(kShape, 1);
  const auto layer = multi_head(full(1));
  EXPECT_EQ(refusal([&] { output(layer, x.view()); }),
            "FullAttention: dropout.probability is 1; expected at least 0 and less than 1");
}

TEST(BlockDropout, EvaluationHasNone) {
  const Activations x = drawn(kShape, 1);
  const std::vector<double> expected = output(stack(0), x.view());
  EXPECT_TRUE(same_bits(output(stack(0.4), x.view()), expected));
  EXPECT_TRUE(same_bits(output(stack(0), in_training<double>(x.view())), expected));
  EXPECT_FALSE(same_bits(output(stack(0.4), in_training<double>(x.view())), expected));
  const auto dropping = stack(0.4);
  auto decoder = dropping.decoder({.batch = 2});
  EXPECT_TRUE(same_bits(decoded(decoder, x, {1, 3}, fovea::Serial{}).values(), expected));
}

/// Its blocks are numbered, and each drops elements by its number.
TEST(BlockDropout, BlocksOfAStackDropDifferentElements) {
  const Activations x = drawn(kShape, 1);
  const auto made = stack(0.4);
  const std::vector<double> got = output(made, in_training<double>(x.view()));
  Activations now = drawn(kShape, 1);
  TrainingStep step = kStep;
  for (const auto& of_stack : made.blocks) {
    const Activations next(kShape);
    of_stack.forward(in_training<double>(now.view(), step), next.view());
    for_each_index(kShape,
                   [&](Index b, Index h, Index n, Index c) { now(b, h, n, c) = next(b, h, n, c); });
    ++step.layer;
  }
  EXPECT_TRUE(same_bits(now.values(), got));
}

TEST(BlockDropout, Gradients) {
  auto made = stack(0.4);
  expect_layer_gradients(made, kShape, kShape,
                         [](const View<const double>& x) { return in_training<double>(x); },
                         {.tolerance = 1e-6});
}

TEST(BlockDropout, BackwardRequiresTheSameStep) {
  auto made = block(0.4);
  const Activations x = drawn(kShape, 1);
  const Activations y(kShape), d_x(kShape);
  Block<fovea::FullAttention>::Saved saved;
  const auto backward = [&](auto& layer, auto& kept, const Tokens<double>& tokens) {
    fovea::zero_gradients(layer);
    const std::string text = refusal([&] { layer.backward(tokens, kept, x.view(), d_x.view()); });
    layer.visit([](fovea::Parameter<double>& p) { EXPECT_EQ(p.gradient.squaredNorm(), 0); });
    return text;
  };
  made.forward(in_training<double>(x.view()), y.view(), saved);
  EXPECT_EQ(backward(made, saved, x.view()),
            "EncoderBlock: training is unset; expected step 8 of seed 5 in layer 2, as in the "
            "forward pass");
  made.forward(x.view(), y.view(), saved);
  EXPECT_EQ(backward(made, saved, in_training<double>(x.view())),
            "EncoderBlock: training is step 8 of seed 5 in layer 2; expected unset, as in the "
            "forward pass");
  fovea::MultiHead<fovea::FullAttention, double>::Saved of_attention;
  made.attention.forward(in_training<double>(x.view()), y.view(), of_attention);
  EXPECT_EQ(
      backward(made.attention, of_attention, x.view()),
      "MultiHead: training is unset; expected step 8 of seed 5 in layer 2, as in the forward pass");
}

TEST(BlockDropout, ProbabilitiesOutOfRange) {
  EXPECT_EQ(refusal([] { block(1); }),
            "DropoutLayer: probability is 1; expected at least 0 and less than 1");
}

}  // namespace fovea_test::layers_dropout
