// SPDX-License-Identifier: MIT
#include "fovea/layers/multi_head_decoder.hpp"

#include <map>

#include "layers/decoding.hpp"

namespace fovea_test::layers_multi_head_decoder {

constexpr Index kTokens = 150;

template <class T, class Op>
fovea::MultiHead<Op, T> drawn_layer(const Op& op) {
  fovea::Initialiser initialiser(1);
  auto layer = make_multi_head<Op, T>(op, initialiser);
  draw_parameters(layer, 5);
  return layer;
}

TEST(MultiHeadDecoder, MatchesForwardBitwiseForAnyStepSizes) {
  const std::vector<std::vector<Index>> pieces = {{1}, {kTokens}, {70, 1, 1, 33}, {2, 29}};
  for_each_causal_operator([&](const char* name, const auto& op) {
    SCOPED_TRACE(name);
    expect_decoded_bits(drawn_layer<float>(op), some_tokens<float>(2, kTokens), pieces);
    expect_decoded_bits(drawn_layer<double>(op), some_tokens<double>(2, kTokens), pieces);
  });
}

TEST(MultiHeadDecoder, ForksAreIndependentAndTokensAreRolledBack) {
  for_each_causal_operator([](const char* name, const auto& op) {
    SCOPED_TRACE(name);
    const bool is_window = std::string(name) == "local";  // sums take no promise
    expect_forks_and_rollback(drawn_layer<double>(op), is_window ? 4 : 0);
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
  auto layer = drawn_layer<float>(op);
  const Tensor<float> x = some_tokens<float>(2, kTokens);
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
  auto layer = drawn_layer<float>(op);
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
  const Tensor<float> x = some_tokens<float>(2, kTokens);
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
