// SPDX-License-Identifier: MIT
#include "fovea/layers/multi_head_decoder.hpp"

#include <map>

#include "layers/decoding.hpp"

namespace fovea_test::layers_multi_head_decoder {

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

TEST(MultiHeadDecoder, MatchesForwardBitwiseForAnyStepSizes) {
  for_each_causal_operator([](const char* name, const auto& op) {
    SCOPED_TRACE(name);
    expect_bits_of_forward<float>(op);
    expect_bits_of_forward<double>(op);
  });
}

TEST(MultiHeadDecoder, ForksAreIndependentAndTokensAreRolledBack) {
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

TEST(MultiHeadDecoder, RefusedCallsLeaveItUnchanged) {
  fovea::Initialiser initialiser(1);
  const auto layer = make_multi_head<fovea::FullAttention, double>(
      fovea::FullAttention{{.causal = true}}, initialiser);
  auto decoder = layer.decoder({.batch = 2});
  const Tensor<double> x({2, 1, 3, kDecodedWidth}), narrow({2, 1, 3, kDecodedWidth - 1}),
      one({1, 1, 3, kDecodedWidth}), y(x.shape());
  x.fill(constant(1));
  EXPECT_EQ(refusal([&] { decoder.step(narrow.view(), y.view()); }),
            "MultiHead: x has width 11; expected 12, the width of the layer");
  EXPECT_EQ(refusal([&] { decoder.step(one.view(), y.view()); }),
            "MultiHead: y has batch 2; expected 1, the batch of x");
  const Tensor<double> out(one.shape());
  EXPECT_EQ(refusal([&] { decoder.step(one.view(), out.view()); }),
            "MultiHead: x has batch 1; expected 2, the batch of the decoder");
  EXPECT_EQ(decoder.length(), 0);
  decoder.step(x.view(), y.view());
  EXPECT_EQ(refusal([&] { decoder.rollback(4); }),
            "FullAttention: rollback is 4; expected 0 to 3, the tokens in the decoder");
  EXPECT_EQ(decoder.length(), 3);
}

/// The parameters of a layer by their names, as floats.
template <class Layer>
std::map<std::string, fovea::RowMatrix<float>> values_of(Layer& layer) {
  std::map<std::string, fovea::RowMatrix<float>> all;
  layer.visit([&](const std::string& name, const auto& parameter) {
    all[name] = parameter.value.template cast<float>();
  });
  return all;
}

/// The result of a layer whose queries, keys and values are rounded to S.
template <class S, class Op>
Tensor<float> with_rounded_heads(const Op& op, fovea::MultiHead<Op, float>& layer,
                                 const Tensor<float>& x) {
  const auto weights = values_of(layer);
  const auto& sizes = layer.sizes();
  fovea::Initialiser initialiser(1);
  fovea::Linear<float> in(sizes.width, weights.at("qkv.weight").cols(), initialiser);
  in.weight.value = weights.at("qkv.weight");
  in.bias.value = weights.at("qkv.bias");
  fovea::Linear<float> out(sizes.heads * sizes.head_width, sizes.width, initialiser);
  out.weight.value = weights.at("out.weight");
  out.bias.value = weights.at("out.bias");
  fovea::Buffer<float> projected, side_by_side;
  fovea::Buffer<S> parts[4];
  const Index batch = x.shape()[0], rows = x.shape()[2];
  const View<float> all = projected.resize(batch, rows, in.out());
  in.forward(View<const float>(x.view()), all);
  const Index heads[] = {sizes.heads, sizes.key_heads, sizes.key_heads, sizes.heads};
  for (Index i = 0, column = 0; i < 4; ++i) {
    const auto to = parts[i].resize({batch, heads[i], rows, sizes.head_width});
    for (Index h = 0; i < 3 && h < heads[i]; ++h) {
      for (Index c = 0; c < sizes.head_width; ++c, ++column) {
        for (Index b = 0; b < batch; ++b) {
          for (Index n = 0; n < rows; ++n) to(b, h, n, c) = static_cast<S>(all(b, 0, n, column));
        }
      }
    }
  }
  op.forward({.q = parts[0].view(), .k = parts[1].view(), .v = parts[2].view()}, parts[3].view());
  const View<float> rows_of_heads = side_by_side.resize(batch, rows, out.in());
  for (Index b = 0; b < batch; ++b) {
    for (Index n = 0; n < rows; ++n) {
      for (Index c = 0; c < out.in(); ++c) {
        const Index h = c / sizes.head_width;
        rows_of_heads(b, 0, n, c) =
            static_cast<float>(parts[3].view()(b, h, n, c - h * sizes.head_width));
      }
    }
  }
  Tensor<float> y(x.shape());
  out.forward(View<const float>(rows_of_heads), y.view());
  return y;
}

template <class S, class Op>
void expect_short_cache(const Op& op) {
  fovea::Initialiser initialiser(1);
  auto layer = make_multi_head<Op, float>(op, initialiser);
  draw_parameters(layer, 5);
  const Tensor<float> x = some_tokens<float>(2);
  const Tensor<float> expected = with_rounded_heads<S>(op, layer, x);
  EXPECT_NE(expected.values(), at_once(layer, x).values());
  fovea::ThreadPool pool(3);
  for (const auto& pieces : {std::vector<Index>{1}, {kTokens}, {70, 1, 1, 33}}) {
    auto decoder = layer.template decoder<S>({.batch = 2});
    const AnyExecutor three = AnyExecutor::of(pool);
    EXPECT_TRUE(
        same_bits(decoded(decoder, x, pieces, three).values(), expected.values(), x.shape()));
    auto fork = decoder.fork();
    fork.rollback(kTokens - 3);
    EXPECT_EQ(fork.length(), kTokens - 3);
  }
  const fovea::LayerDecoderShape shape{.batch = 2, .reserve = 1000};
  EXPECT_LT(static_cast<double>(layer.template decoder<S>(shape).memory_bytes()),
            0.6 * static_cast<double>(layer.decoder(shape).memory_bytes()));
}

TEST(MultiHeadDecoder, CachesOf16BitsHaveTheirOwnBits) {
  const fovea::FullAttention full{{.causal = true}};
  expect_short_cache<Eigen::half>(full);
  expect_short_cache<Eigen::bfloat16>(full);
  expect_short_cache<Eigen::bfloat16>(fovea::LocalAttention{{.left = 5, .right = 0}});
  expect_short_cache<Eigen::half>(fovea::StridedAttention{{.stride = 4}});
}

/// Weights of 16 bits are read as exactly that: a layer of them has the bits of one whose floats
/// are these.
template <class W>
void expect_short_weights() {
  const fovea::FullAttention op{{.causal = true}};
  fovea::Initialiser initialiser(1);
  auto layer = make_multi_head<fovea::FullAttention, float>(op, initialiser);
  draw_parameters(layer, 5);
  fovea::MultiHead<fovea::FullAttention, float, W> short_layer(
      op, {.width = kDecodedWidth, .heads = 4, .key_heads = 2, .head_width = 5, .bias = true},
      initialiser);
  const auto values = values_of(layer);
  short_layer.visit([&]<class P>(const std::string& name, fovea::Parameter<P>& parameter) {
    parameter.value = values.at(name).template cast<P>();
  });
  const auto rounded = values_of(short_layer);
  EXPECT_NE(rounded.at("qkv.weight"), values.at("qkv.weight"));
  EXPECT_EQ(rounded.at("qkv.bias"), values.at("qkv.bias"));
  layer.visit(
      [&](const std::string& name, auto& parameter) { parameter.value = rounded.at(name); });
  const Tensor<float> x = some_tokens<float>(2);
  const Tensor<float> expected = at_once(layer, x);
  EXPECT_TRUE(same_bits(at_once(short_layer, x).values(), expected.values(), x.shape()));
  auto decoder = short_layer.decoder({.batch = 2});
  EXPECT_TRUE(same_bits(decoded(decoder, x, {70, 1, 1, 33}, fovea::Serial{}).values(),
                        expected.values(), x.shape()));
}

TEST(MultiHeadDecoder, WeightsOf16BitsEqualTheirFloats) {
  expect_short_weights<Eigen::half>();
  expect_short_weights<Eigen::bfloat16>();
}

}  // namespace fovea_test::layers_multi_head_decoder
