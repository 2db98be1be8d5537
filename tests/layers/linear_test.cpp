// SPDX-License-Identifier: MIT
#include "fovea/layers/linear.hpp"

#include "layers/gradient_check.hpp"
#include "support/small_stack.hpp"

namespace fovea_test::layers_linear {

using fovea::Initialiser;
using Layer = fovea::Linear<double>;

Layer layer(Index in, Index out, bool bias = true) {
  Initialiser initialiser(3);
  Layer made(in, out, initialiser, {.bias = bias});
  draw_parameters(made, 7);
  return made;
}

/// x W + b, in the order of the sum's definition.
std::vector<double> expected(const Layer& linear, const Activations& x) {
  std::vector<double> y;
  for (Index b = 0; b < x.shape()[0]; ++b) {
    for (Index n = 0; n < x.shape()[2]; ++n) {
      for (Index j = 0; j < linear.out(); ++j) {
        double sum = linear.bias.value.size() == 0 ? 0 : linear.bias.value(0, j);
        for (Index i = 0; i < linear.in(); ++i) sum += x(b, 0, n, i) * linear.weight.value(i, j);
        y.push_back(sum);
      }
    }
  }
  return y;
}

TEST(Linear, IsTheMatrixProduct) {
  for (const bool bias : {true, false}) {
    const Layer linear = layer(5, 7, bias);
    // Rows of 5 in a matrix of 9 columns, and batches with a gap.
    const Activations x({2, 1, 300, 5}, {.gap = 4});
    const Activations y({2, 1, 300, 7}, {.gap = 3});
    x.fill(gaussian(1));
    linear.forward(x.view(), y.view());
    EXPECT_TRUE(close_to(y.values(), expected(linear, x), 1e-14));
    EXPECT_EQ(y.changed_gaps(), 0);
  }
}

TEST(Linear, TellsTheExecutorWhichWeightsItReads) {
  const Layer linear = layer(5, 7);
  const Activations x({2, 1, 3, 5}), y({2, 1, 3, 7});
  const RecordsReads executor;
  linear.forward(x.view(), y.view(), executor);
  const std::vector<std::pair<const void*, Index>> expected = {
      {linear.weight.value.data(), Index{5 * 7 * sizeof(double)}}};
  EXPECT_EQ(executor.reads, expected);
}

/// A token of one channel has no stride from channel to channel that could be wrong.
TEST(Linear, TakesAnyStrideOfOneChannel) {
  const Layer linear = layer(1, 2);
  const Activations dense = drawn({2, 1, 3, 1}, 1);
  const Activations expected({2, 1, 3, 2});
  linear.forward(dense.view(), expected.view());
  const View<const double> x(dense.view().data(), {2, 1, 3, 1}, {3, 3, 1, 7});
  const Activations y({2, 1, 3, 2});
  EXPECT_EQ(refusal([&] { linear.forward(x, y.view()); }), "accepted");
  EXPECT_TRUE(same_bits(y.values(), expected.values()));
}

TEST(Linear, Gradients) {
  for (const bool bias : {true, false}) {
    Layer linear = layer(4, 3, bias);
    expect_layer_gradients(linear, {2, 1, 5, 4}, {2, 1, 5, 3}, alone);
  }
}

TEST(Linear, AddsToTheGradientOfXIfRequested) {
  Layer linear = layer(4, 3);
  const Activations x = drawn({1, 1, 6, 4}, 1);
  const Activations d_y = drawn({1, 1, 6, 3}, 2);
  const Activations once({1, 1, 6, 4});
  const Activations twice({1, 1, 6, 4});
  Layer::Saved saved;
  for (const Activations* d_x : {&once, &twice}) {
    linear.backward(x.view(), saved, d_y.view(), d_x->view());
  }
  linear.backward(x.view(), saved, d_y.view(), twice.view(), fovea::Serial{},
                  fovea::OutputMode::add);
  for_each_index(once.shape(), [&](Index b, Index h, Index n, Index d) {
    EXPECT_DOUBLE_EQ(twice(b, h, n, d), 2 * once(b, h, n, d));
  });
  // Nobody asks for the gradient of the first layer's input.
  linear.backward(x.view(), saved, d_y.view(), {});
}

TEST(Linear, ThreadsDoNotChangeBits) {
  Layer small = layer(24, 70);
  expect_same_bits_for_threads(small, {2, 1, 300, 24}, {2, 1, 300, 70}, alone);
  Layer large = layer(160, 130);
  expect_same_bits_for_threads(large, {1, 1, 260, 160}, {1, 1, 260, 130}, alone);
}

/// Threads share the columns of few rows, and no tile changes a bit; sequences of one row each are
/// rows of one product.
TEST(Linear, ThreadsShareTheColumnsOfFewRows) {
  for (const Index out : {1, 64, 300}) {
    Layer linear = layer(130, out);
    for (const Shape& shape : {Shape{1, 1, 1, 130}, {3, 1, 1, 130}, {2, 1, 4, 130}}) {
      expect_same_bits_for_threads(linear, shape, {shape[0], 1, shape[2], out}, alone);
    }
  }
  Index most = 0;
  const Layer wide = layer(9, 500);
  const Activations x = drawn({1, 1, 1, 9}, 1), y({1, 1, 1, 500});
  wide.forward(x.view(), y.view(), CountsTasks{most});
  EXPECT_EQ(most, CountsTasks::concurrency());
}

/// Sequences of one row in a cache of many rows: the product's rows have the stride of sequences.
TEST(Linear, MultipliesOneRowOfEachSequence) {
  const Layer linear = layer(20, 33);
  const Activations x = drawn({5, 1, 7, 20}, 1), y({5, 1, 7, 33}), expected_y({5, 1, 7, 33});
  linear.forward(x.view(), expected_y.view());
  for (Index n = 0; n < 7; ++n) {
    linear.forward(View<const double>(&x(0, 0, n, 0), {5, 1, 1, 20}, x.view().strides()),
                   View<double>(&y(0, 0, n, 0), {5, 1, 1, 33}, y.view().strides()));
  }
  EXPECT_TRUE(same_bits(y.values(), expected_y.values()));
}

TEST(Linear, FitsASmallStack) {
  Layer linear = layer(200, 150);
  const Activations x = drawn({1, 1, 300, 200}, 1);
  const Activations y({1, 1, 300, 150});
  const Activations d_x(x.shape());
  Layer::Saved saved;
  on_small_stack([&] {
    linear.forward(x.view(), y.view());
    linear.backward(x.view(), saved, y.view(), d_x.view());
  });
  EXPECT_TRUE(close_to(y.values(), expected(linear, x), 1e-13));
}

TEST(Linear, NoTokens) {
  Layer linear = layer(4, 3);
  const auto all = everything(linear, {1, 1, 0, 4}, {1, 1, 0, 3}, alone, fovea::Serial{});
  for (const double x : all) EXPECT_EQ(x, 0);
  everything(linear, {0, 1, 5, 4}, {0, 1, 5, 3}, alone, fovea::Serial{});
}

}  // namespace fovea_test::layers_linear
