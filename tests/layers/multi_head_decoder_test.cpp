// SPDX-License-Identifier: MIT
#include "fovea/layers/multi_head_decoder.hpp"

#include "layers/decoding.hpp"

namespace fovea_test {
namespace {

constexpr Index kTokens = 150;

template <class T>
Tensor<T> some_tokens(Index batch) {
  Tensor<T> x({batch, 1, kTokens, kDecodedWidth});
  x.fill(gaussian(3, 1));
  return x;
}

/// y of all tokens at once.
template <class Layer, class T>
Tensor<T> at_once(const Layer& layer, const Tensor<T>& x) {
  Tensor<T> y(x.shape());
  layer.forward(View<const T>(x.view()), y.view());
  return y;
}

template <class T, class Op>
void expect_bits_of_forward(const Op& op) {
  fovea::Initialiser initialiser(1);
  auto layer = make_multi_head<Op, T>(op, initialiser);
  draw_parameters(layer, 5);
  const Tensor<T> x = some_tokens<T>(2);
  const Tensor<T> expected = at_once(layer, x);
  fovea::ThreadPool pool(3);
  for (const auto& pieces : {std::vector<Index>{1}, {kTokens}, {70, 1, 1, 33}, {2, 29}}) {
    auto decoder = layer.decoder({.batch = 2});
    EXPECT_TRUE(same_bits(decoded(decoder, x, pieces, fovea::Serial{}).values(), expected.values(),
                          x.shape()));
    decoder.clear();
    const AnyExecutor three = AnyExecutor::of(pool);
    EXPECT_TRUE(
        same_bits(decoded(decoder, x, pieces, three).values(), expected.values(), x.shape()));
  }
}

TEST(MultiHeadDecoder, GivesTheBitsOfForwardWhateverThePieces) {
  for_each_causal_operator([](const char* name, const auto& op) {
    SCOPED_TRACE(name);
    expect_bits_of_forward<float>(op);
    expect_bits_of_forward<double>(op);
  });
}

TEST(MultiHeadDecoder, ForksAreIndependentAndTokensAreTakenBack) {
  for_each_causal_operator([](const char* name, const auto& op) {
    SCOPED_TRACE(name);
    fovea::Initialiser initialiser(1);
    auto layer = make_multi_head<std::remove_cvref_t<decltype(op)>, double>(op, initialiser);
    draw_parameters(layer, 5);
    const Tensor<double> x = some_tokens<double>(1);
    const Tensor<double> expected = at_once(layer, x);
    const auto expect_row = [&](auto& decoder, Index n) {
      const Tensor<double> y({1, 1, 1, kDecodedWidth});
      decoder.step(rows_from(x.view(), n, 1), y.view());
      for (Index c = 0; c < kDecodedWidth; ++c) EXPECT_EQ(y(0, 0, 0, c), expected(0, 0, n, c));
    };
    const bool is_window = std::string(name) == "local";  // sums take no promise
    auto decoder = layer.decoder({.rollback_tokens = is_window ? 4 : 0});
    for (Index n = 0; n < 70; ++n) expect_row(decoder, n);
    auto other = decoder.fork();
    const Tensor<double> draft({1, 1, 1, kDecodedWidth});
    for (Index n = 100; n < 102; ++n) decoder.step(rows_from(x.view(), n, 1), draft.view());
    EXPECT_EQ(decoder.length(), 72);
    decoder.rollback(70);
    for (Index n = 70; n < 80; ++n) expect_row(decoder, n);
    EXPECT_EQ(other.length(), 70);
    for (Index n = 70; n < 74; ++n) expect_row(other, n);
    EXPECT_GT(decoder.memory_bytes(), 0);
  });
}

TEST(MultiHeadDecoder, WhatItRefusesLeavesItAsItWas) {
  fovea::Initialiser initialiser(1);
  const auto layer = make_multi_head<fovea::FullAttention, double>(
      fovea::FullAttention{{.causal = true}}, initialiser);
  auto decoder = layer.decoder({.batch = 2});
  const Tensor<double> x({2, 1, 3, kDecodedWidth}), narrow({2, 1, 3, kDecodedWidth - 1}),
      one({1, 1, 3, kDecodedWidth}), y(x.shape());
  x.fill(constant(1));
  EXPECT_EQ(refusal([&] { decoder.step(narrow.view(), y.view()); }),
            "MultiHead: width of x is 11; expected 12, that of the layer");
  EXPECT_EQ(refusal([&] { decoder.step(one.view(), y.view()); }),
            "MultiHead: batch of y is 2; expected 1, the batch of x");
  const Tensor<double> out(one.shape());
  EXPECT_EQ(refusal([&] { decoder.step(one.view(), out.view()); }),
            "MultiHead: batch of x is 1; expected 2, the batch of the decoder");
  EXPECT_EQ(decoder.length(), 0);
  decoder.step(x.view(), y.view());
  EXPECT_EQ(refusal([&] { decoder.rollback(4); }),
            "FullAttention: rollback is 4; expected 0 to 3, the tokens in the decoder");
  EXPECT_EQ(decoder.length(), 3);
}

}  // namespace
}  // namespace fovea_test
