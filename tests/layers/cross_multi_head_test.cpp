// SPDX-License-Identifier: MIT
#include "fovea/layers/cross_multi_head.hpp"

#include "fovea/attention/full.hpp"
#include "fovea/attention/local.hpp"
#include "layers/by_hand.hpp"
#include "layers/decoding.hpp"

namespace fovea_test::layers_cross_multi_head {

using fovea::CrossMultiHead;
using fovea::CrossMultiHeadOptions;
using fovea::CrossTokens;
using fovea::FullAttention;

constexpr Index kWidth = 6;
constexpr Index kMemoryWidth = 5;
constexpr Shape kX = {2, 1, 4, kWidth};
constexpr Shape kMemory = {2, 1, 7, kMemoryWidth};
const std::vector<Index> kLengths = {7, 3};
constexpr CrossMultiHeadOptions kGrouped = {.width = kWidth,
                                            .memory_width = kMemoryWidth,
                                            .heads = 4,
                                            .key_heads = 2,
                                            .head_width = 3,
                                            .bias = true,
                                            .sinks = true};

template <class T, class Op = FullAttention>
CrossMultiHead<Op, T> make(const Op& op = Op(), const CrossMultiHeadOptions& options = kGrouped) {
  fovea::Initialiser initialiser(3);
  CrossMultiHead<Op, T> layer(op, options, initialiser);
  draw_parameters(layer, 17, 0.4);
  return layer;
}

/// A bias of pairs, and a mask of keys that shows key 0.
template <class T>
struct Extras {
  Extras() : bias({1, 4, 4, 7}), d_bias({1, 4, 4, 7}), mask({2, 1, 1, 7}) {
    bias.fill(gaussian(31, 1));
    d_bias.fill(constant(0));
    for_each_index(mask.shape(), [&](Index b, Index h, Index i, Index j) {
      mask(b, h, i, j) = j == 0 || uniform(hash(9, b, h, i, j)) < 0.6;
    });
  }

  CrossTokens<T> tokens(const View<const T>& x, const View<const T>& memory) const {
    return {.x = x,
            .memory = memory,
            .key_lengths = kLengths,
            .bias = bias.view(),
            .mask = mask.view()};
  }

  Tensor<T> bias, d_bias;
  Tensor<bool> mask;
};

template <class T, class Op>
void expect_by_hand(const Op& op, double bound) {
  auto layer = make<T>(op);
  const Extras<T> extras;
  Tensor<T> x(kX), memory(kMemory), y(kX);
  x.fill(gaussian(21, 1));
  memory.fill(gaussian(22, 1));
  layer.forward(extras.tokens(x.view(), memory.view()), y.view());
  const Weights weights = weights_of(layer);
  const Activations q = projected(in_double(x), weights, "q", 0, 4, 3);
  const Activations k = projected(in_double(memory), weights, "kv", 0, 2, 3);
  const Activations v = projected(in_double(memory), weights, "kv", 6, 2, 3);
  const Activations bias = in_double(extras.bias);
  fovea::SoftmaxInputs<double> inputs{q.view(), k.view(), v.view(), kLengths};
  inputs.bias = bias.view();
  inputs.mask = extras.mask.view();
  inputs.sink = {weights.at("sinks").data(), 4};
  const Activations out({2, 4, 4, 3});
  op.forward(inputs, out.view());
  const Activations expected = projected(side_by_side(out), weights, "out", 0, 1, kWidth);
  const std::vector<T> got = y.values();
  EXPECT_TRUE(close_to({got.begin(), got.end()}, expected.values(), bound));
}

TEST(CrossMultiHead, EqualsTheOperatorBetweenProjections) {
  expect_by_hand<double>(FullAttention(), 1e-13);
  expect_by_hand<float>(FullAttention(), 1e-5);
  // The operator determines the positions of rows among the keys.
  const fovea::CausalAlignment top = fovea::CausalAlignment::top_left;
  expect_by_hand<double>(FullAttention({.causal = true, .alignment = top}), 1e-13);
  expect_by_hand<double>(
      fovea::LocalAttention(
          {.left = 5, .right = 1, .alignment = fovea::CausalAlignment::key_length}),
      1e-13);
}

TEST(CrossMultiHead, GradientsOfRowsMemoryAndWeights) {
  auto layer = make<double>();
  const Extras<double> extras;
  const Activations x = drawn(kX, 11), memory = drawn(kMemory, 13), y(kX);
  const Activations d_x(kX), d_memory(kMemory), d_y = drawn(kX, 12);
  CrossMultiHead<FullAttention, double>::Saved saved;
  const auto tokens = [&] { return extras.tokens(x.view(), memory.view()); };
  const auto forward = [&] {
    layer.forward(tokens(), y.view(), saved);
    return y.values();
  };
  const auto backward = [&] {
    layer.backward(tokens(), saved, d_y.view(), d_x.view(), d_memory.view());
  };
  expect_gradients(layer, x, d_x, d_y, forward, backward);
  expect_gradients(layer, memory, d_memory, d_y, forward, backward);
}

TEST(CrossMultiHead, GradientOfTheBias) {
  auto layer = make<double>();
  const Extras<double> extras;
  const Activations x = drawn(kX, 11), memory = drawn(kMemory, 13), y(kX), d_y = drawn(kX, 12);
  CrossMultiHead<FullAttention, double>::Saved saved;
  CrossTokens<double> tokens = extras.tokens(x.view(), memory.view());
  tokens.d_bias = extras.d_bias.view();
  layer.forward(tokens, y.view(), saved);
  layer.backward(tokens, saved, d_y.view(), {}, {});
  const auto forward = [&] {
    layer.forward(tokens, y.view());
    return y.values();
  };
  expect_differences(extras.bias, extras.d_bias, d_y, forward, 1e-7);
}

/// Layers that read one memory add to one gradient; a gradient that is not given is not written.
TEST(CrossMultiHead, GradientsAreAddedOrOmitted) {
  auto layer = make<double>();
  const Activations x = drawn(kX, 11), memory = drawn(kMemory, 13), y(kX), d_y = drawn(kX, 12);
  const Activations d_memory(kMemory), sum = filled(kMemory, 2), d_x(kX), alone(kX);
  CrossMultiHead<FullAttention, double>::Saved saved;
  const CrossTokens<double> tokens = {.x = x.view(), .memory = memory.view()};
  layer.forward(tokens, y.view(), saved);
  layer.backward(tokens, saved, d_y.view(), d_x.view(), d_memory.view());
  layer.backward(tokens, saved, d_y.view(), {}, sum.view(), fovea::Serial{},
                 fovea::OutputMode::add);
  layer.backward(tokens, saved, d_y.view(), alone.view(), {});
  for_each_index(kMemory, [&](Index b, Index h, Index n, Index d) {
    EXPECT_NEAR(sum(b, h, n, d), 2 + d_memory(b, h, n, d), 1e-13);
  });
  EXPECT_TRUE(same_bits(alone.values(), d_x.values()));
}

template <class T>
void expect_decoded_bits() {
  const auto layer = make<T>();
  const std::vector<Index> lengths = {130, 77};
  Tensor<T> x({2, 1, 90, kWidth}), memory({2, 1, 130, kMemoryWidth}), y(x.shape());
  x.fill(gaussian(3, 1));
  memory.fill(gaussian(4, 1));
  layer.forward({.x = x.view(), .memory = memory.view(), .key_lengths = lengths}, y.view());
  const fovea::ThreadPool pool(3);
  const AnyExecutor three = AnyExecutor::of(pool);
  auto decoder = layer.decoder(View<const T>(memory.view()), lengths, three);
  memory.fill(constant(0));  // it is not read again
  for (const Index piece : {1, 7, 33, 90}) {
    for (Index n = 0; n < 90; n += piece) {
      const Index count = std::min<Index>(piece, 90 - n);
      const Tensor<T> part({2, 1, count, kWidth}), serial(part.shape());
      decoder.step(rows_from(x.view(), n, count), part.view(), three);
      decoder.step(rows_from(x.view(), n, count), serial.view());
      EXPECT_TRUE(same_bits(part.values(), serial.values()));
      for_each_index(part.shape(), [&](Index b, Index h, Index i, Index c) {
        EXPECT_EQ(part(b, h, i, c), y(b, h, n + i, c));
      });
    }
  }
}

TEST(CrossMultiHeadDecoder, MatchesForwardBitwise) { expect_decoded_bits<double>(); }
TEST(CrossMultiHeadDecoder, MatchesForwardBitwiseInFloat) { expect_decoded_bits<float>(); }

TEST(CrossMultiHead, DropsOnlyInTraining) {
  const auto dropping = make<double>(FullAttention{{.dropout = {.probability = 0.4}}});
  const auto plain = make<double>();
  const Activations x = drawn(kX, 11), memory = drawn(kMemory, 13);
  CrossTokens<double> tokens = {.x = x.view(), .memory = memory.view()};
  const auto output = [&](const auto& layer) {
    const Activations y(kX);
    layer.forward(tokens, y.view());
    return y.values();
  };
  EXPECT_TRUE(same_bits(output(dropping), output(plain)));
  auto decoder = dropping.decoder(memory.view());
  const Activations stepped(kX);
  decoder.step(x.view(), stepped.view());
  EXPECT_TRUE(same_bits(stepped.values(), output(plain)));
  tokens.training = fovea::TrainingStep{.seed = 1};
  EXPECT_FALSE(same_bits(output(dropping), output(plain)));
}

TEST(CrossMultiHead, Refusals) {
  const auto layer = make<double>();
  const Activations x = drawn(kX, 11), memory = drawn(kMemory, 13), y(kX);
  const auto with = [&](const View<const double>& from, fovea::IndexSpan lengths,
                        const View<double>& to) {
    return refusal(
        [&] { layer.forward({.x = x.view(), .memory = from, .key_lengths = lengths}, to); });
  };
  const Activations narrow({2, 1, 7, 4}), one({1, 1, 7, kMemoryWidth});
  const std::vector<Index> lengths = {7, 8};
  EXPECT_EQ(with(narrow.view(), {}, y.view()),
            "CrossMultiHead: memory has width 4; expected 5, the width of the layer");
  EXPECT_EQ(with(one.view(), {}, y.view()),
            "CrossMultiHead: memory has batch 1; expected 2, the batch of x");
  EXPECT_EQ(with(memory.view(), lengths, y.view()),
            "CrossMultiHead: key_lengths[1] is 8; expected 0 to 7, the rows of memory");
  EXPECT_EQ(with(memory.view(), {}, x.view()),
            "CrossMultiHead: y overlaps x; outputs must not alias inputs or each other");
  for (const double at : y.values()) EXPECT_TRUE(std::isnan(at));
  auto decoder = layer.decoder(memory.view());
  const Activations first({1, 1, 4, kWidth}), out({1, 1, 4, kWidth});
  EXPECT_EQ(refusal([&] { decoder.step(first.view(), out.view()); }),
            "CrossMultiHead: x has batch 1; expected 2, the batch of the memory");
  for (const auto& op : {FullAttention{{.causal = true}}, FullAttention{{.window = {.left = 3}}}}) {
    const auto placed = make<double>(op);
    EXPECT_EQ(refusal([&] { static_cast<void>(placed.decoder(memory.view())); }),
              "CrossMultiHead: the operator is causal or has a window; expected an operator whose "
              "rows see all keys, since rows have no positions in this decoder");
  }
  EXPECT_EQ(refusal([] { make<double>(FullAttention(), {.width = 4, .memory_width = -1}); }),
            "CrossMultiHead: memory_width is -1; expected at least 1");
}

/// Nothing is added to a gradient before.
TEST(CrossMultiHead, BackwardRefusesFirst) {
  auto layer = make<double>();
  const Activations x = drawn(kX, 11), memory = drawn(kMemory, 13), y(kX), d_x(kX);
  const Activations narrow({2, 1, 7, 4}), longer = drawn({2, 1, 8, kMemoryWidth}, 1);
  CrossMultiHead<FullAttention, double>::Saved saved;
  CrossTokens<double> tokens = {.x = x.view(), .memory = memory.view()};
  layer.forward(tokens, y.view(), saved);
  const auto with = [&](const View<double>& d_memory) {
    const std::string text =
        refusal([&] { layer.backward(tokens, saved, y.view(), d_x.view(), d_memory); });
    layer.visit([](fovea::Parameter<double>& p) { EXPECT_EQ(p.gradient.squaredNorm(), 0); });
    return text;
  };
  EXPECT_EQ(with(narrow.view()),
            "CrossMultiHead: d_memory has width 4; expected 5, the width of the layer");
  EXPECT_EQ(
      with(memory.view()),
      "CrossMultiHead: d_memory overlaps memory; outputs must not alias inputs or each other");
  const Activations thin({2, 1, 7, kWidth + 1});
  EXPECT_EQ(refusal([&] { layer.backward(tokens, saved, thin.view(), d_x.view(), {}); }),
            "CrossMultiHead: d_y has width " + std::to_string(kWidth + 1) + "; expected " +
                std::to_string(kWidth) + ", the width of the layer");
  tokens.training = fovea::TrainingStep{};
  EXPECT_EQ(with({}),
            "CrossMultiHead: training is step 0 of seed 0 in layer 0; expected unset, as in the "
            "forward pass");
  tokens.training = {};
  tokens.memory = longer.view();
  EXPECT_EQ(with({}),
            "CrossMultiHead: saved has 2 sequences of 7 rows; expected 2 of 8, from the forward "
            "pass of this x");
}

}  // namespace fovea_test::layers_cross_multi_head
