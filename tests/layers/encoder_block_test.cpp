// SPDX-License-Identifier: MIT
#include "fovea/layers/encoder_block.hpp"

#include "fovea/attention/full.hpp"
#include "fovea/layers/gated_feed_forward.hpp"
#include "fovea/layers/multi_head.hpp"
#include "fovea/layers/rms_norm.hpp"
#include "layers/gradient_check.hpp"

namespace fovea_test::layers_encoder_block {

template <class T>
using Attention = fovea::MultiHead<fovea::FullAttention, T>;
template <class T>
using Block = fovea::EncoderBlock<Attention<T>, T>;
using fovea::Tokens;

constexpr Shape kShape = {2, 1, 5, 4};
const std::vector<Index> kLengths = {5, 3};

template <class T>
Attention<T> attention(Index width, fovea::Initialiser& initialiser) {
  return {fovea::FullAttention{}, {.width = width, .heads = 2}, initialiser};
}

template <class T = double>
Block<T> block(const fovea::EncoderBlockOptions& options, Index width = 4) {
  fovea::Initialiser initialiser(3);
  const Attention<T> of_block = attention<T>(width, initialiser);
  Block<T> made(of_block, width, 6, initialiser, options);
  draw_parameters(made, 5, 0.3);
  return made;
}

template <class T>
Tokens<T> with_lengths(const View<const T>& x) {
  return Tokens<T>(x, kLengths);
}

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
std::pair<std::vector<double>, std::vector<double>> both_ways(bool norm_first) {
  const Block<T> made = block<T>({.norm_first = norm_first});
  fovea::Initialiser initialiser(1);
  fovea::LayerNorm<T> norm1(4);
  fovea::LayerNorm<T> norm2(4);
  fovea::FeedForward<T> feed_forward(4, 6, initialiser);
  copy(made, "norm1", norm1);
  copy(made, "norm2", norm2);
  copy(made, "feed_forward", feed_forward);
  Tensor<T> x(kShape);
  x.fill(gaussian(1, 1));
  const Tensor<T> y(kShape);
  made.forward(with_lengths(View<const T>(x.view())), y.view());
  // x becomes x + f(norm(x)), or norm(x + f(x)).
  const auto add = [&](const auto& norm, const auto& f) {
    const Tensor<T> from(kShape), of(kShape);
    if (norm_first) norm.forward(x.view(), from.view());
    f(View<const T>(norm_first ? from.view() : x.view()), of.view());
    for_each_index(kShape,
                   [&](Index n, Index h, Index i, Index c) { of(n, h, i, c) += x(n, h, i, c); });
    if (norm_first) {
      x = of.in({});
    } else {
      norm.forward(of.view(), x.view());
    }
  };
  add(norm1, [&](const View<const T>& from, const View<T>& to) {
    made.attention.forward(with_lengths(from), to);
  });
  add(norm2, [&](const View<const T>& from, const View<T>& to) { feed_forward.forward(from, to); });
  std::vector<double> got, expected;
  for_each_index(kShape, [&](Index n, Index h, Index i, Index c) {
    got.push_back(static_cast<double>(y(n, h, i, c)));
    expected.push_back(static_cast<double>(x(n, h, i, c)));
  });
  return {got, expected};
}

TEST(EncoderBlock, EqualsTheCompositionOfItsParts) {
  for (const bool norm_first : {true, false}) {
    const auto [got, expected] = both_ways<double>(norm_first);
    EXPECT_TRUE(close_to(got, expected, 1e-14));
    const auto [got_in_float, expected_in_float] = both_ways<float>(norm_first);
    EXPECT_TRUE(close_to(got_in_float, expected_in_float, 1e-6));
    EXPECT_TRUE(close_to(got_in_float, got, 1e-5));
  }
}

TEST(EncoderBlock, RowsOfYAreNormalisedIfNormIsLast) {
  fovea::Initialiser initialiser(3);
  const Block<double> fresh(attention<double>(4, initialiser), 4, 6, initialiser,
                            {.norm_first = false});
  const Activations x = drawn(kShape, 1);
  const Activations y(kShape);
  fresh.forward(with_lengths<double>(x.view()), y.view());
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

TEST(EncoderBlock, Gradients) {
  for (const bool norm_first : {true, false}) {
    auto made = block({.norm_first = norm_first});
    expect_layer_gradients(made, kShape, kShape, with_lengths<double>, {.tolerance = 1e-6});
    using Gated = fovea::GatedFeedForward<double>;
    using Other = fovea::EncoderBlock<Attention<double>, double, fovea::RmsNorm<double>, Gated>;
    fovea::Initialiser initialiser(3);
    Other with_other_parts(attention<double>(4, initialiser), Gated(4, 6, initialiser),
                           {.norm_first = norm_first, .epsilon = 1e-3});
    draw_parameters(with_other_parts, 5, 0.3);
    expect_layer_gradients(with_other_parts, kShape, kShape, with_lengths<double>,
                           {.tolerance = 1e-6});
  }
}

TEST(EncoderBlock, ThreadsDoNotChangeBits) {
  for (const bool norm_first : {true, false}) {
    auto made = block({.norm_first = norm_first}, 16);
    expect_same_bits_for_threads(made, {2, 1, 300, 16}, {2, 1, 300, 16}, alone);
  }
}

TEST(EncoderBlock, DropoutIsBeforeTheSums) {
  for (const bool norm_first : {true, false}) {
    auto dropping = block({.norm_first = norm_first, .dropout = 0.4});
    const auto in_training = [](const View<const double>& x) {
      Tokens<double> tokens(x, kLengths);
      tokens.training = fovea::TrainingStep{.seed = 3, .step = 7};
      return tokens;
    };
    expect_layer_gradients(dropping, kShape, kShape, in_training, {.tolerance = 1e-6});
  }
}

}  // namespace fovea_test::layers_encoder_block
