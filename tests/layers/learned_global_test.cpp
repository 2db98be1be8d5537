// SPDX-License-Identifier: MIT
#include "fovea/layers/learned_global.hpp"

#include "fovea/attention/full.hpp"
#include "fovea/layers/multi_head.hpp"
#include "layers/by_hand.hpp"

namespace fovea_test::layers_learned_global {

using fovea::LongformerAttention;
using fovea::MultiHeadOptions;
using fovea::Tokens;
using Layer = fovea::MultiHead<LongformerAttention, double>;

constexpr Index kWidth = 6;
const Shape kShape = {2, 1, 12, kWidth};
const std::vector<Index> kLengths = {12, 7};
const std::vector<Index> kEnds = {0, 5, 12};

MultiHeadOptions options() {
  return {.width = kWidth,
          .heads = 4,
          .key_heads = 2,
          .head_width = 3,
          .bias = true,
          .global_projections = true};
}

LongformerAttention op(bool causal) {
  return LongformerAttention{
      {.left = 2, .right = 1, .first_global = 1, .global = {4}, .causal = causal}};
}

Layer make(bool causal = false, const MultiHeadOptions& chosen = options()) {
  fovea::Initialiser initialiser(3);
  Layer layer(op(causal), chosen, initialiser);
  draw_parameters(layer, 17, 0.4);
  return layer;
}

Tokens<double> with_lengths(const View<const double>& x) { return {x, kLengths}; }
Tokens<double> packed(const View<const double>& x) {
  Tokens<double> made(x);
  made.cu_seqlens = kEnds;
  return made;
}

TEST(LearnedGlobal, EqualsTheOperatorBetweenProjections) {
  for (const bool causal : {false, true}) {
    Layer layer = make(causal);
    const Activations x = drawn(kShape, 21);
    const Activations y(kShape);
    layer.forward(with_lengths(x.view()), y.view());
    const Weights weights = weights_of(layer);
    const auto [q, k, v] = heads_of(x, weights, "qkv", 4, 2, 3);
    const ProjectedHeads global = heads_of(x, weights, "global_qkv", 4, 2, 3);
    fovea::LongformerInputs<double> inputs{q.view(), k.view(), v.view(), kLengths};
    inputs.global_q = global.q.view();
    inputs.global_k = global.k.view();
    inputs.global_v = global.v.view();
    const Activations out(q.shape());
    layer.op().forward(inputs, out.view());
    const Activations expected = projected(side_by_side(out), weights, "out", 0, 1, kWidth);
    EXPECT_TRUE(close_to(y.values(), expected.values(), 1e-13));
  }
}

TEST(LearnedGlobal, GradientsMatchDifferences) {
  for (const bool causal : {false, true}) {
    Layer layer = make(causal);
    expect_layer_gradients(layer, kShape, kShape, with_lengths);
    const Shape one = {1, 1, 12, kWidth};
    expect_layer_gradients(layer, one, one, packed);
  }
}

/// With the weights of the other rows, the projections of global rows change nothing.
TEST(LearnedGlobal, EqualProjectionsEqualOneSet) {
  Layer layer = make();
  const Weights weights = weights_of(layer);
  layer.visit([&](fovea::Parameter<double>& p) {
    if (p.name == "global_qkv.weight") p.value = weights.at("qkv.weight");
    if (p.name == "global_qkv.bias") p.value = weights.at("qkv.bias");
  });
  MultiHeadOptions without = options();
  without.global_projections = false;
  Layer plain = make(false, without);
  plain.visit([&](fovea::Parameter<double>& p) { p.value = weights.at(p.name); });
  const Activations x = drawn(kShape, 21);
  const Activations y(kShape), expected(kShape);
  layer.forward(with_lengths(x.view()), y.view());
  plain.forward(with_lengths(x.view()), expected.view());
  EXPECT_TRUE(same_bits(y.values(), expected.values()));
}

/// Parameters have unique names, and absent ones are not listed.
TEST(LearnedGlobal, ListsItsWeightsOnlyIfItHasThem) {
  const auto names = [](const Layer& layer) {
    std::vector<std::string> all;
    layer.visit([&](const fovea::Parameter<double>& p) { all.push_back(p.name); });
    return all;
  };
  const std::vector<std::string> plain = {"qkv.weight", "qkv.bias", "out.weight", "out.bias"};
  const std::vector<std::string> own = {"qkv.weight",      "qkv.bias",   "global_qkv.weight",
                                        "global_qkv.bias", "out.weight", "out.bias"};
  MultiHeadOptions chosen = options();
  EXPECT_EQ(names(make()), own);
  chosen.global_projections = false;
  EXPECT_EQ(names(make(false, chosen)), plain);
}

TEST(LearnedGlobal, RefusesOptionsThatGlobalRowsDoNotSupport) {
  EXPECT_EQ(refusal([&] { static_cast<void>(make(true).decoder()); }),
            "LongformerAttention: global_projections is true; expected false: a decoder keeps one "
            "set of keys and values");
  MultiHeadOptions chosen = options();
  chosen.sinks = true;
  EXPECT_EQ(refusal([&] { make(false, chosen); }),
            "MultiHead: global_projections is true; expected false with sinks: the gradient of "
            "sinks is not supported with them");
  chosen = options();
  chosen.head_width = 4;
  chosen.rotary = fovea::RotaryOptions{};
  EXPECT_EQ(refusal([&] { make(false, chosen); }),
            "MultiHead: global_projections is true; expected false with rotary: rotary positions "
            "are not applied to them");
  fovea::Initialiser initialiser(3);
  using Full = fovea::MultiHead<fovea::FullAttention, double>;
  EXPECT_EQ(
      refusal([&] { Full(fovea::FullAttention{}, options(), initialiser); }),
      "MultiHead: global_projections is true; expected false: FullAttention does not read them");
  // A gradient of the bias is not to be had: nothing is added anywhere before that is said.
  Layer layer = make();
  const Activations x = drawn(kShape, 1), y(kShape), d_x = filled(kShape, 5);
  const Activations bias = drawn({1, 1, 12, 12}, 2), d_bias = filled({1, 1, 12, 12}, 5);
  Tokens<double> tokens = with_lengths(x.view());
  tokens.bias = bias.view();
  tokens.d_bias = d_bias.view();
  Layer::Saved saved;
  fovea::zero_gradients(layer);
  layer.forward(tokens, y.view(), saved);
  EXPECT_EQ(refusal([&] { layer.backward(tokens, saved, y.view(), d_x.view()); }),
            "LongformerAttention: the gradient of bias must not be given: it is not defined with "
            "global_q");
  EXPECT_TRUE(same_bits(d_x.values(), filled(kShape, 5).values()));
  layer.visit([](const fovea::Parameter<double>& p) {
    EXPECT_EQ(p.gradient.cwiseAbs().maxCoeff(), 0) << p.name;
  });
}

}  // namespace fovea_test::layers_learned_global
