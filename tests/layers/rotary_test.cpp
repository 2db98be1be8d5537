// SPDX-License-Identifier: MIT
#include "fovea/layers/rotary.hpp"

#include <complex>

#include "layers/decoding.hpp"

namespace fovea_test::layers_rotary {

using fovea::RotaryAngles;
using fovea::RotaryOptions;
using fovea::RotaryPairing;

template <class T>
using Rotary = fovea::Rotary<T>;

constexpr Index kHeads = 3, kRows = 7, kHeadWidth = 12;

/// Heads beside columns that are not theirs.
View<double> heads_of(const Activations& x) {
  return fovea::as_heads(x.view(), 5, kHeads, kHeadWidth);
}

Activations turned(const RotaryOptions& options, Index first, bool is_back = false) {
  Activations x = drawn({2, 1, kRows, 5 + kHeads * kHeadWidth + 2}, 1);
  RotaryAngles<double> angles;
  Rotary<double>("Test", options, kHeadWidth)
      .turn(heads_of(x), first, angles, is_back, fovea::Serial{});
  return x;
}

TEST(Rotary, TurnsPairsByTheirPosition) {
  for (const RotaryPairing pairing : {RotaryPairing::halves, RotaryPairing::neighbours}) {
    for (const Index width : {0, 8}) {
      const RotaryOptions options{
          .base = 500, .pairing = pairing, .width = width, .position_scale = 0.5};
      const Activations before = drawn({2, 1, kRows, 5 + kHeads * kHeadWidth + 2}, 1);
      const Activations after = turned(options, 40);
      const Index turned_width = width == 0 ? kHeadWidth : width;
      for_each_index(before.shape(), [&](Index b, Index, Index n, Index c) {
        const Index d = (c - 5) % kHeadWidth;
        if (c < 5 || c >= 5 + kHeads * kHeadWidth || d >= turned_width) {
          EXPECT_EQ(after(b, 0, n, c), before(b, 0, n, c));
          return;
        }
        const bool halves = pairing == RotaryPairing::halves;
        const bool is_first = halves ? d < turned_width / 2 : d % 2 == 0;
        if (!is_first) return;
        const Index i = halves ? d : d / 2;
        const Index partner = c + (halves ? turned_width / 2 : 1);
        const double frequency =
            std::pow(500, -2 * static_cast<double>(i) / static_cast<double>(turned_width));
        const double angle = 0.5 * static_cast<double>(40 + n) * frequency;
        const std::complex<double> expected =
            std::complex<double>(before(b, 0, n, c), before(b, 0, n, partner)) *
            std::polar(1.0, angle);
        EXPECT_NEAR(after(b, 0, n, c), expected.real(), 1e-13);
        EXPECT_NEAR(after(b, 0, n, partner), expected.imag(), 1e-13);
      });
    }
  }
}

/// The frequencies of Llama 3.1 (base 500000, factor 8, 1 and 4 turns in 8192 tokens), of pairs
/// whose values were computed by hand: pair 0 stays, the last one is divided by 8.
TEST(Rotary, StretchesSlowFrequencies) {
  const auto angle_at_1 = [](Index pair) {
    const RotaryOptions options{.base = 500000, .stretch = fovea::RotaryStretch{}};
    Tensor<double> x({1, 1, 1, 128});
    x.fill(constant(0));
    x(0, 0, 0, pair) = 1;
    RotaryAngles<double> angles;
    Rotary<double>("Test", options, 128).turn(x.view(), 1, angles, false, fovea::Serial{});
    return std::atan2(x(0, 0, 0, pair + 64), x(0, 0, 0, pair));
  };
  EXPECT_NEAR(angle_at_1(0), 1, 1e-15);
  EXPECT_NEAR(angle_at_1(63), std::pow(500000, -126.0 / 128) / 8, 1e-18);
  const double frequency = std::pow(500000, -64.0 / 128);  // 1.84 turns in 8192 tokens
  const double kept = (8192 * frequency / (2 * std::acos(-1)) - 1) / 3;
  EXPECT_GT(kept, 0.2);
  EXPECT_NEAR(angle_at_1(32), frequency * ((1 - kept) / 8 + kept), 1e-15);
}

TEST(Rotary, ProductsKnowTheDistanceAlone) {
  const Activations near = turned({}, 3);
  const Activations far = turned({}, 1003);
  const auto product = [&](const Activations& x, Index n, Index m) {
    double sum = 0;
    for (Index c = 5; c < 5 + kHeadWidth; ++c) sum += x(0, 0, n, c) * x(0, 0, m, c);
    return sum;
  };
  for (Index n = 0; n < kRows; ++n) {
    for (Index m = 0; m < kRows; ++m) EXPECT_NEAR(product(near, n, m), product(far, n, m), 1e-11);
  }
}

TEST(Rotary, Refusals) {
  const auto message = [](const RotaryOptions& options, Index head_width = 12) {
    return refusal([&] { Rotary<float>("MultiHead", options, head_width); });
  };
  EXPECT_EQ(message({.width = 14}),
            "MultiHead: rotary.width is 14; expected an even number up to 12, the width of a head");
  EXPECT_NE(message({.width = 3}).find("even"), std::string::npos);
  EXPECT_NE(message({}, 5).find("even"), std::string::npos);
  EXPECT_EQ(message({.base = 0}), "MultiHead: rotary.base is 0; expected a finite number above 0");
  EXPECT_NE(message({.base = std::nan("")}).find("rotary.base"), std::string::npos);
  EXPECT_EQ(message({.position_scale = INFINITY}),
            "MultiHead: rotary.position_scale is inf; expected a finite number");
  const auto stretch = [&](const fovea::RotaryStretch& s) { return message({.stretch = s}); };
  EXPECT_NE(stretch({.factor = 0.5}).find("rotary.stretch.factor is 0.5"), std::string::npos);
  EXPECT_NE(stretch({.low = 4}).find("rotary.stretch.high"), std::string::npos);
  EXPECT_NE(stretch({.low = -1}).find("rotary.stretch.low"), std::string::npos);
  EXPECT_NE(stretch({.original_length = 0}).find("original_length"), std::string::npos);
  EXPECT_EQ(message({}), "accepted");
}

using Layer = fovea::MultiHead<fovea::FullAttention, double>;

Layer rotary_layer(RotaryPairing pairing, Index head_width = 4) {
  fovea::Initialiser initialiser(1);
  Layer layer(fovea::FullAttention{{.causal = true}},
              {.width = 6,
               .heads = 2,
               .key_heads = 1,
               .head_width = head_width,
               .rotary = RotaryOptions{.base = 30, .pairing = pairing}},
              initialiser);
  draw_parameters(layer, 5);
  return layer;
}

TEST(Rotary, GradientsOfALayer) {
  for (const RotaryPairing pairing : {RotaryPairing::halves, RotaryPairing::neighbours}) {
    Layer layer = rotary_layer(pairing);
    expect_layer_gradients(layer, {2, 1, 5, 6}, {2, 1, 5, 6}, alone, {.tolerance = 1e-6});
  }
}

TEST(Rotary, ThreadsChangeNoBitOfALayer) {
  Layer layer = rotary_layer(RotaryPairing::halves, 40);
  expect_same_bits_for_threads(layer, {2, 1, 300, 6}, {2, 1, 300, 6}, alone);
}

TEST(Rotary, DecodersGoOnWhereTheyAre) {
  for (const RotaryPairing pairing : {RotaryPairing::halves, RotaryPairing::neighbours}) {
    const Layer layer = rotary_layer(pairing);
    const Activations x = drawn({2, 1, 50, 6}, 1);
    const Activations y(x.shape());
    layer.forward(View<const double>(x.view()), y.view());
    for (const auto& pieces : {std::vector<Index>{1}, {13, 1, 1}, {50}}) {
      auto decoder = layer.decoder({.batch = 2});
      EXPECT_TRUE(same_bits(decoded(decoder, x, pieces, fovea::Serial{}).values(), y.values()));
    }
  }
}

}  // namespace fovea_test::layers_rotary
