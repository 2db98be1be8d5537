// SPDX-License-Identifier: MIT
// fovea_test(NEEDS fftw)
#include "fovea/layers/fsat_layer.hpp"

#include "layers/hidden_cross_by_hand.hpp"

namespace fovea_test::layers_fsat_layer {

using fovea::EdgeSource;
using fovea::FsatLayerOptions;
using fovea::HiddenMapKind;
using fovea::Tokens;
using Layer = fovea::FsatLayer<double>;

constexpr Index kBatch = 2;
constexpr Index kRows = 9;
constexpr Index kWidth = 6;
constexpr Shape kShape = {kBatch, 1, kRows, kWidth};
const std::vector<Index> kLengths = {9, 6};

FsatLayerOptions options(HiddenMapKind map, EdgeSource edges, bool truncate) {
  FsatLayerOptions made;
  made.width = kWidth;
  made.heads = 2;
  made.bias = true;
  made.map = map;
  made.dominant = 2;
  made.attention = {.max_length = 11, .edges = edges, .seed = 77, .truncate_gradient = truncate};
  return made;
}

Layer layer(const FsatLayerOptions& chosen, std::uint64_t seed = 17) {
  fovea::Initialiser initialiser(3);
  Layer made(chosen, initialiser);
  draw_parameters(made, seed, 0.4);
  return made;
}

struct Kind {
  HiddenMapKind map;
  EdgeSource edges;
};
const std::vector<Kind> kKinds = {{HiddenMapKind::fully_connected, EdgeSource::predicted},
                                  {HiddenMapKind::fully_connected, EdgeSource::both},
                                  {HiddenMapKind::convolution, EdgeSource::both},
                                  {HiddenMapKind::convolution, EdgeSource::random}};

Tokens<double> with_lengths(const View<const double>& x) { return Tokens<double>(x, kLengths); }

/// The dominant indices by hand.
Activations dominant_of(Layer& made, const FsatLayerOptions& chosen, const Activations& x) {
  const Weights weights = weights_of(made);
  return dominant_by_hand(hidden_cross(x, kLengths, weights), weights, chosen.heads,
                          chosen.dominant, static_cast<double>(chosen.attention.max_length));
}

TEST(FsatLayer, MatchesItsDefinition) {
  for (const Kind& kind : kKinds) {
    const FsatLayerOptions chosen = options(kind.map, kind.edges, true);
    Layer made = layer(chosen);
    const Activations x = drawn(kShape, 11);
    const Activations y(kShape);
    made.forward(with_lengths(x.view()), y.view());
    const Weights weights = weights_of(made);
    const auto expected = hidden_cross_layer_by_hand(
        fovea::FsatAttention(chosen.attention), x, hidden_cross(x, kLengths, weights),
        dominant_of(made, chosen, x), kLengths, weights, 2, kWidth / 2);
    EXPECT_TRUE(close_to(y.values(), expected, 1e-12));
  }
}

TEST(FsatLayer, GradientsOfFixedEdges) {
  for (const Kind& kind : kKinds) {
    const FsatLayerOptions chosen = options(kind.map, kind.edges, false);
    Layer made = layer(chosen);
    const Activations x = drawn(kShape, 11);
    // A step of 1e-6 moves an index by less than 1e-4, so that none becomes another integer.
    const Activations dominant = dominant_of(made, chosen, x);
    for_each_index(dominant.shape(), [&](Index b, Index h, Index n, Index m) {
      const double at = dominant(b, h, n, m);
      ASSERT_TRUE(n >= kLengths[as_size(b)] || std::abs(at - std::round(at)) > 2e-4);
    });
    expect_layer_gradients(made, kShape, kShape, with_lengths, {.step = 1e-6, .tolerance = 1e-6});
  }
}

/// What the gradient is with truncation is the operator's property.
TEST(FsatLayer, GradientsAreTruncatedByTheOperator) {
  const auto run = [](bool truncates) {
    Layer made = layer(options(HiddenMapKind::convolution, EdgeSource::both, truncates));
    return everything(made, kShape, kShape, with_lengths, fovea::Serial{});
  };
  EXPECT_FALSE(same_bits(run(true), run(false)));
}

TEST(FsatLayer, DataBeyondALengthHaveNoEffect) {
  Layer made = layer(options(HiddenMapKind::convolution, EdgeSource::predicted, true));
  const Activations x = drawn(kShape, 11);
  const Activations y(kShape), again(kShape);
  made.forward(with_lengths(x.view()), y.view());
  for (Index c = 0; c < kWidth; ++c) x(1, 0, 7, c) = 1e3;
  made.forward(with_lengths(x.view()), again.view());
  EXPECT_TRUE(same_bits(again.values(), y.values()));
}

TEST(FsatLayer, InitialIndicesAreSpreadOverTheSequence) {
  fovea::Initialiser initialiser(3);
  Layer made(options(HiddenMapKind::fully_connected, EdgeSource::predicted, true), initialiser);
  const Weights weights = weights_of(made);
  for (Index c = 0; c < 4; ++c) {
    EXPECT_NEAR(logistic(weights.at("dominant.bias")(0, c)), (static_cast<double>(c) + 0.5) / 4,
                1e-15);
  }
}

TEST(FsatLayer, TrainingAndInference) {
  FsatLayerOptions chosen = options(HiddenMapKind::fully_connected, EdgeSource::predicted, true);
  Layer made = layer(chosen);
  const Activations x = drawn(kShape, 11);
  const auto output = [&] {
    const Activations y(kShape);
    made.forward(x.view(), y.view());
    return y.values();
  };
  const auto inference = output();
  made.set_training(1);
  const auto first = output();
  made.set_training(2);
  EXPECT_FALSE(same_bits(output(), first));
  EXPECT_FALSE(same_bits(inference, first));
  made.set_inference();
  EXPECT_TRUE(same_bits(output(), inference));
}

/// The draws given as tensors are the same edges, forward and backward.
TEST(FsatLayer, TakesGivenRandomEdges) {
  const FsatLayerOptions chosen = options(HiddenMapKind::fully_connected, EdgeSource::both, true);
  Layer made = layer(chosen);
  made.set_training(5);
  const Index heads = made.sizes().heads;
  std::vector<Index> given(as_size(kBatch * heads * kRows * chosen.dominant));
  const View<Index> random(given.data(), {kBatch, heads, kRows, chosen.dominant});
  const auto draws = [&](std::uint64_t seed) {
    for_each_index(random.shape(), [&](Index b, Index h, Index j, Index m) {
      const double u = fovea::uniform_draw<double>(seed, b, h, j, m);
      random(b, h, j, m) = static_cast<Index>(u * static_cast<double>(kRows));
    });
  };
  const Activations x = drawn(kShape, 11);
  const auto run = [&](bool gives) {
    fovea::Tokens<double> tokens(x.view());
    if (gives) tokens.random = random;
    const Activations y(kShape), d_x(kShape);
    Layer::Saved saved;
    fovea::zero_gradients(made);
    made.forward(tokens, y.view(), saved);
    made.backward(tokens, saved, x.view(), d_x.view());
    std::vector<double> all = y.values();
    const std::vector<double> d = d_x.values();
    all.insert(all.end(), d.begin(), d.end());
    return all;
  };
  const auto drawn_by_layer = run(false);
  draws(5);
  EXPECT_TRUE(same_bits(run(true), drawn_by_layer));
  draws(6);
  EXPECT_FALSE(same_bits(run(true), drawn_by_layer));
  random(1, 0, 3, 1) = kRows;
  EXPECT_NE(refusal([&] { run(true); }).find("FsatAttention: random[1, 0, 3, 1] is"),
            std::string::npos);
}

TEST(FsatLayer, Refusals) {
  const auto making = [](auto&& change) {
    return refusal([&] {
      FsatLayerOptions chosen =
          options(HiddenMapKind::fully_connected, EdgeSource::predicted, true);
      change(chosen);
      fovea::Initialiser initialiser(1);
      Layer(chosen, initialiser);
    });
  };
  EXPECT_EQ(making([](FsatLayerOptions& o) { o.attention.max_length = 0; }),
            "FsatLayer: max_length is 0; expected at least 1");
  EXPECT_EQ(making([](FsatLayerOptions& o) { o.dominant = 0; }),
            "FsatLayer: dominant is 0; expected at least 1");
  EXPECT_EQ(making([](FsatLayerOptions& o) { o.heads = 4; }),
            "FsatLayer: heads is 4; expected a divisor of the width 6, or a head_width");
  Layer made = layer(options(HiddenMapKind::fully_connected, EdgeSource::predicted, true));
  const Activations x = drawn({1, 1, 12, kWidth}, 1);
  const Activations y(x.shape());
  EXPECT_EQ(
      refusal([&] { made.forward(x.view(), y.view()); }),
      "FsatAttention: max_length is 11; expected at least 12, the tokens of the longest sequence");
  Layer::Saved saved;
  EXPECT_EQ(refusal([&] { made.backward(x.view(), saved, x.view(), y.view()); }),
            "FsatLayer: saved has 0 sequences of 0 rows; expected 1 of 12, from the forward pass "
            "of this x");
}

TEST(FsatLayer, OneAndTwoTokens) {
  for (const Index rows : {1, 2}) {
    Layer made = layer(options(HiddenMapKind::convolution, EdgeSource::both, true));
    for (const double x :
         everything(made, {1, 1, rows, kWidth}, {1, 1, rows, kWidth}, alone, fovea::Serial{})) {
      EXPECT_TRUE(std::isfinite(x));
    }
  }
}

/// The cross mixes all rows, and the layer predicts its own indices.
TEST(FsatLayer, RefusesPackedSequencesAndIndices) {
  const Layer made = layer(options(HiddenMapKind::fully_connected, EdgeSource::predicted, true));
  const Index width = made.sizes().width;
  const Activations x = filled({1, 1, 6, width}, 1), y(x.shape());
  const Activations dominant = filled({1, made.sizes().heads, 6, 1}, 1);
  const std::vector<Index> ends = {0, 2, 6};
  fovea::Tokens<double> packed(x.view()), given(x.view());
  packed.cu_seqlens = ends;
  given.dominant = dominant.view();
  EXPECT_EQ(refusal([&] { made.forward(packed, y.view()); }),
            "FsatLayer: cu_seqlens must not be given: the layer does not support packed sequences");
  EXPECT_EQ(refusal([&] { made.forward(given, y.view()); }),
            "FsatLayer: dominant must not be given: the layer predicts it");
}

}  // namespace fovea_test::layers_fsat_layer
