// SPDX-License-Identifier: MIT
/// \file
/// The Luna layer against its two attentions by hand; gradients of x, p and the weights, through
/// both outputs; bits; what it refuses.
#include "fovea/layers/luna_layer.hpp"

#include "fovea/attention/full.hpp"
#include "layers/by_hand.hpp"
#include "layers/gradient_check.hpp"

namespace fovea_test::layers_luna_layer {

using fovea::LunaLayer;
using fovea::LunaOutputs;
using fovea::LunaTokens;

constexpr Index kWidth = 8;
constexpr Shape kX = {2, 1, 7, kWidth};
constexpr Shape kPacked = {2, 1, 3, kWidth};
const std::vector<Index> kLengths = {7, 4};

template <class T>
LunaLayer<T> make() {
  fovea::Initialiser initialiser(3);
  LunaLayer<T> layer({.width = kWidth, .heads = 4, .key_heads = 2, .bias = true}, initialiser);
  draw_parameters(layer, 17, 0.4);
  return layer;
}

LunaTokens<double> tokens(const Activations& x, const Activations& packed) {
  return {x.view(), packed.view(), kLengths};
}

std::vector<double> both(const Activations& x, const Activations& packed) {
  return joined({x.values(), packed.values()});
}

TEST(LunaLayer, EqualsTwoAttentionsBetweenProjections) {
  auto layer = make<double>();
  const Activations x = drawn(kX, 21), packed = drawn(kPacked, 22), y(kX), y_packed(kPacked);
  layer.forward(tokens(x, packed), {y.view(), y_packed.view()});
  const Weights weights = weights_of(layer);
  const Activations pq = projected(packed, weights, "pack_q", 0, 4, 2);
  const Activations xk = projected(x, weights, "pack_kv", 0, 2, 2);
  const Activations xv = projected(x, weights, "pack_kv", 4, 2, 2);
  const Activations yp({2, 4, 3, 2});
  fovea::FullAttention{}.forward({pq.view(), xk.view(), xv.view(), kLengths}, yp.view());
  const Activations packed_out = side_by_side(yp);
  EXPECT_TRUE(close_to(y_packed.values(), packed_out.values(), 1e-13));
  const Activations xq = projected(x, weights, "q", 0, 4, 2);
  const Activations yk = projected(packed_out, weights, "kv", 0, 2, 2);
  const Activations yv = projected(packed_out, weights, "kv", 4, 2, 2);
  const Activations yx({2, 4, 7, 2});
  fovea::FullAttention{}.forward({xq.view(), yk.view(), yv.view()}, yx.view());
  EXPECT_TRUE(close_to(y.values(), side_by_side(yx).values(), 1e-13));
}

/// Of <Yx, d> + <Yp, d'>, or of <Yx, d> alone.
TEST(LunaLayer, Gradients) {
  auto layer = make<double>();
  const Activations x = drawn(kX, 11), packed = drawn(kPacked, 13), y(kX), y_packed(kPacked);
  const Activations d_x(kX), d_packed(kPacked), d_y = drawn(kX, 12),
                                                d_y_packed = drawn(kPacked, 14);
  LunaLayer<double>::Saved saved;
  for (const bool uses_packed : {true, false}) {
    const Activations weights({1, 1, 1, size_of(kX) + (uses_packed ? size_of(kPacked) : 0)});
    const std::vector<double> all = both(d_y, d_y_packed);
    weights.fill([&](Index, Index, Index, Index d) { return all[as_size(d)]; });
    const auto forward = [&] {
      layer.forward(tokens(x, packed), {y.view(), y_packed.view()}, saved);
      return uses_packed ? both(y, y_packed) : y.values();
    };
    const auto backward = [&] {
      LunaOutputs<const double> of;
      of.x = d_y.view();
      if (uses_packed) of.packed = d_y_packed.view();
      layer.backward(tokens(x, packed), saved, of, {d_x.view(), d_packed.view()});
    };
    expect_gradients(layer, x, d_x, weights, forward, backward);
    expect_gradients(layer, packed, d_packed, weights, forward, backward);
  }
}

/// The packed sequence goes from layer to layer.
TEST(LunaLayer, RefusesMismatchedTokens) {
  auto layer = make<double>();
  const Activations x = drawn(kX, 11), packed = drawn(kPacked, 13), y(kX), y_packed(kPacked);
  LunaLayer<double>::Saved saved;
  layer.forward(tokens(x, packed), {y.view(), y_packed.view()}, saved);
  const Activations d_y = drawn(kX, 12);
  const auto expect = [&](const LunaTokens<double>& wrong, const std::string& message) {
    const Activations out(kX), out_packed(kPacked);
    EXPECT_EQ(refusal([&] {
                layer.forward(wrong, {out.view(), out_packed.view()});
              }),
              "LunaLayer: " + message);
    EXPECT_EQ(refusal([&] {
                layer.backward(wrong, saved, {d_y.view(), {}}, {});
              }),
              "LunaLayer: " + message);
    for (const double at : both(out, out_packed)) EXPECT_TRUE(std::isnan(at));
    layer.visit([](fovea::Parameter<double>& p) { EXPECT_EQ(p.gradient.squaredNorm(), 0); });
  };
  const std::vector<Index> long_lengths = {7, 8}, too_few = {7};
  expect({x.view(), packed.view(), long_lengths},
         "key_lengths[1] is 8; expected 0 to 7, the rows of x");
  expect({x.view(), packed.view(), too_few},
         "the number of key_lengths is 1; expected 2, the batch of x, or 0");
  const Activations other = drawn({1, 1, kPacked[2], kPacked[3]}, 13);
  expect({x.view(), other.view(), kLengths}, "packed has batch 1; expected 2, the batch of x");
}

TEST(LunaLayer, HiddenTokensDoNotChangeBits) {
  auto layer = make<float>();
  Tensor<float> x(kX), packed(kPacked), y(kX), y_packed(kPacked);
  x.fill(gaussian(1));
  packed.fill(gaussian(2));
  layer.forward({x.view(), packed.view(), kLengths}, {y.view(), y_packed.view()});
  const std::vector<float> before = y_packed.values();
  const std::vector<float> rows = y.values();
  for (Index n = 4; n < 7; ++n) {
    for (Index d = 0; d < kWidth; ++d) x(1, 0, n, d) = std::numeric_limits<float>::quiet_NaN();
  }
  layer.forward({x.view(), packed.view(), kLengths}, {y.view(), y_packed.view()});
  EXPECT_TRUE(same_bits(before, y_packed.values()));
  const std::vector<float> after = y.values();
  const auto seen = as_size((7 + 4) * kWidth);
  EXPECT_TRUE(same_bits(rows.data(), after.data(), seen, {1, 1, 11, kWidth}));
}

TEST(LunaLayer, Refusals) {
  auto layer = make<double>();
  const Activations x = drawn(kX, 1), packed = drawn(kPacked, 2), y(kX), y_packed(kPacked);
  const Activations other({1, 1, 3, kWidth}), narrow({2, 1, 3, 5});
  const LunaOutputs<double> out{y.view(), y_packed.view()};
  EXPECT_EQ(refusal([&] {
              layer.forward({x.view(), narrow.view()}, out);
            }),
            "LunaLayer: packed has width 5; expected 8, the width of the layer");
  EXPECT_EQ(refusal([&] {
              layer.forward({x.view(), packed.view()}, {y.view(), packed.view()});
            }),
            "LunaLayer: y_packed overlaps packed; outputs must not alias inputs or each other");
  LunaLayer<double>::Saved saved;
  layer.forward({x.view(), packed.view()}, out, saved);
  EXPECT_EQ(refusal([&] {
              layer.backward({x.view(), packed.view()}, saved, {y.view(), other.view()}, {});
            }),
            "LunaLayer: d_y_packed has batch 1; expected 2, the batch of x");
  fovea::Initialiser initialiser(1);
  EXPECT_EQ(refusal([&] { LunaLayer<float>({.width = 9, .heads = 2}, initialiser); }),
            "LunaLayer: heads is 2; expected a divisor of the width 9, or a head_width");
}

}  // namespace fovea_test::layers_luna_layer
