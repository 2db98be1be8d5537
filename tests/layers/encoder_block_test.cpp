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
Attention<T> attention(fovea::Initialiser& initialiser) {
  return {fovea::FullAttention{}, {.width = 4, .heads = 2}, initialiser};
}

template <class T = double>
Block<T> block(const fovea::EncoderBlockOptions& options) {
  fovea::Initialiser initialiser(3);
  const Attention<T> of_block = attention<T>(initialiser);
  Block<T> made(of_block, 4, 6, initialiser, options);
  draw_parameters(made, 5, 0.3);
  return made;
}

template <class T>
Tokens<T> with_lengths(const View<const T>& x) {
  return Tokens<T>(x, kLengths);
}
template <class T>
Tokens<T> in_training(const View<const T>& x) {
  Tokens<T> tokens(x, kLengths);
  tokens.training = fovea::TrainingStep{.seed = 3, .step = 7, .layer = 2};
  return tokens;
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
std::pair<std::vector<double>, std::vector<double>> both_ways(
    const fovea::EncoderBlockOptions& options) {
  const Block<T> made = block<T>(options);
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
  made.forward(in_training(View<const T>(x.view())), y.view());
  // x becomes x + f(norm(x)), or norm(x + f(x)), where dropout is a part of f.
  const auto add = [&](const auto& norm, fovea::DropoutPlace place, const auto& f) {
    const Tensor<T> from(kShape), kept(kShape), of(kShape);
    if (options.norm_first) norm.forward(x.view(), from.view());
    f(View<const T>(options.norm_first ? from.view() : x.view()), kept.view());
    fovea::DropoutLayer<T>(options.dropout, place)
        .forward(in_training(View<const T>(kept.view())), of.view());
    for_each_index(kShape,
                   [&](Index n, Index h, Index i, Index c) { of(n, h, i, c) += x(n, h, i, c); });
    if (options.norm_first) {
      x = of.in({});
    } else {
      norm.forward(of.view(), x.view());
    }
  };
  using fovea::DropoutPlace;
  add(norm1, DropoutPlace::after_attention, [&](const View<const T>& from, const View<T>& to) {
    made.attention.forward(in_training(from), to);
  });
  add(norm2, DropoutPlace::after_feed_forward,
      [&](const View<const T>& from, const View<T>& to) { feed_forward.forward(from, to); });
  std::vector<double> got, expected;
  for_each_index(kShape, [&](Index n, Index h, Index i, Index c) {
    got.push_back(static_cast<double>(y(n, h, i, c)));
    expected.push_back(static_cast<double>(x(n, h, i, c)));
  });
  return {got, expected};
}

TEST(EncoderBlock, EqualsTheCompositionOfItsParts) {
  for (const bool norm_first : {true, false}) {
    for (const double dropout : {0.0, 0.4}) {
      const fovea::EncoderBlockOptions options{.norm_first = norm_first, .dropout = dropout};
      const auto [got, expected] = both_ways<double>(options);
      EXPECT_TRUE(close_to(got, expected, 1e-14));
      const auto [got_in_float, expected_in_float] = both_ways<float>(options);
      EXPECT_TRUE(close_to(got_in_float, expected_in_float, 1e-6));
      EXPECT_TRUE(close_to(got_in_float, got, 1e-5));
    }
  }
}

TEST(EncoderBlock, Gradients) {
  for (const bool norm_first : {true, false}) {
    auto made = block({.norm_first = norm_first});
    expect_layer_gradients(made, kShape, kShape, with_lengths<double>, {.tolerance = 1e-6});
    using Gated = fovea::GatedFeedForward<double>;
    using Other = fovea::EncoderBlock<Attention<double>, double, fovea::RmsNorm<double>, Gated>;
    fovea::Initialiser initialiser(3);
    Other with_other_parts(attention<double>(initialiser), Gated(4, 6, initialiser),
                           {.norm_first = norm_first, .epsilon = 1e-3});
    draw_parameters(with_other_parts, 5, 0.3);
    expect_layer_gradients(with_other_parts, kShape, kShape, with_lengths<double>,
                           {.tolerance = 1e-6});
  }
}

TEST(EncoderBlock, DropoutIsBeforeTheSums) {
  for (const bool norm_first : {true, false}) {
    auto dropping = block({.norm_first = norm_first, .dropout = 0.4});
    expect_layer_gradients(dropping, kShape, kShape, in_training<double>,
                           {.tolerance = 1e-6, .rows_on_threads = 300});
  }
}

}  // namespace fovea_test::layers_encoder_block
