// SPDX-License-Identifier: MIT
#include "fovea/layers/rotary.hpp"

#include <array>
#include <complex>

#include "layers/decoding.hpp"
#include "support/scalars.hpp"

namespace fovea_test::layers_rotary {

using fovea::RotaryAngles;
using fovea::RotaryOptions;
using fovea::RotaryPairing;

template <class T>
using Rotary = fovea::Rotary<T>;

constexpr Index kHeads = 3, kRows = 7, kHeadWidth = 12;

/// Heads between other columns.
View<double> heads_of(const Activations& x) {
  return fovea::as_heads(x.view(), 5, kHeads, kHeadWidth);
}

Activations turned(const RotaryOptions& options, Index first, bool is_back = false) {
  Activations x = drawn({2, 1, kRows, 5 + kHeads * kHeadWidth + 2}, 1);
  Rotary<double>(options, kHeadWidth).turn(heads_of(x), {.first = first, .backward = is_back});
  return x;
}

TEST(Rotary, RotatesPairsByTheirPosition) {
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
    Rotary<double>(options, 128).turn(x.view(), {.first = 1});
    return std::atan2(x(0, 0, 0, pair + 64), x(0, 0, 0, pair));
  };
  EXPECT_NEAR(angle_at_1(0), 1, 1e-15);
  EXPECT_NEAR(angle_at_1(63), std::pow(500000, -126.0 / 128) / 8, 1e-18);
  const double frequency = std::pow(500000, -64.0 / 128);  // 1.84 turns in 8192 tokens
  const double kept = (8192 * frequency / (2 * std::acos(-1)) - 1) / 3;
  EXPECT_GT(kept, 0.2);
  EXPECT_NEAR(angle_at_1(32), frequency * ((1 - kept) / 8 + kept), 1e-15);
}

/// The parts of their frequencies that pairs keep, and the magnitude, as an implementation of the
/// paper in Python has them: base 10000, 64 pairs, 16 times the length of 4096.
TEST(Rotary, StretchesFrequenciesByYarn) {
  const RotaryOptions options{.base = 10000,
                              .yarn = fovea::RotaryYarn{.factor = 16, .original_length = 4096}};
  const auto turned_at_1 = [](const RotaryOptions& of, Index pair) {
    Tensor<double> x({1, 1, 1, 128});
    x.fill(constant(0));
    x(0, 0, 0, pair) = 1;
    Rotary<double>(of, 128).turn(x.view(), {.first = 1});
    return std::complex<double>(x(0, 0, 0, pair), x(0, 0, 0, pair + 64));
  };
  for (const auto& [pair, part] : {std::pair<Index, double>{0, 1},
                                   {20, 1},
                                   {21, 0.9639423076923077},
                                   {30, 0.639423076923077},
                                   {40, 0.2788461538461538},
                                   {45, 0.09855769230769229},
                                   {46, 0.0625},
                                   {63, 0.0625}}) {
    const double frequency = std::pow(10000, -2 * static_cast<double>(pair) / 128);
    const std::complex<double> turned = turned_at_1(options, pair);
    EXPECT_NEAR(std::arg(turned) / frequency, part, 1e-12) << pair;
    EXPECT_NEAR(std::abs(turned), 1.2772588722239782, 1e-14) << pair;
    RotaryOptions scaled = options;
    scaled.magnitude = 0.5;
    scaled.position_scale = 0.25;
    EXPECT_NEAR(std::arg(turned_at_1(scaled, pair)) / frequency, part / 4, 1e-12) << pair;
    EXPECT_NEAR(std::abs(turned_at_1(scaled, pair)), 1.2772588722239782 / 2, 1e-14) << pair;
  }
  // Angles that are kept are not those of another magnitude.
  RotaryAngles<double> angles;
  Tensor<double> x({1, 1, 1, 2});
  for (const double magnitude : {2.0, 3.0}) {
    x(0, 0, 0, 0) = 1;
    x(0, 0, 0, 1) = 0;
    const Rotary<double> rotary({.magnitude = magnitude}, 2);
    rotary.turn(x.view(), {.angles = &angles});
    EXPECT_EQ(x(0, 0, 0, 0), magnitude);
  }
}

TEST(Rotary, OptionsThatAreRefused) {
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
  EXPECT_EQ(message({.magnitude = std::nan("")}),
            "MultiHead: rotary.magnitude is nan; expected a finite number");
  const auto yarn = [&](fovea::RotaryYarn y) { return message({.yarn = y}); };
  EXPECT_EQ(yarn({.factor = 0.5, .original_length = 64}),
            "MultiHead: rotary.yarn.factor is 0.5; expected a finite number, at least 1");
  EXPECT_NE(yarn({.slow = 0, .original_length = 64}).find("rotary.yarn.slow"), std::string::npos);
  EXPECT_NE(yarn({.fast = 0.5, .original_length = 64}).find("rotary.yarn.fast"), std::string::npos);
  EXPECT_NE(yarn({}).find("rotary.yarn.original_length is 0"), std::string::npos);
  const fovea::RotaryYarn whole{.original_length = 64};
  EXPECT_EQ(message({.base = 1, .yarn = whole}),
            "MultiHead: rotary.base is 1; expected a finite number above 1, since yarn is given");
  EXPECT_EQ(message({.stretch = fovea::RotaryStretch{}, .yarn = whole}),
            "MultiHead: rotary.yarn must not be given: stretch is given");
  EXPECT_EQ(yarn(whole), "accepted");
  EXPECT_EQ(message({}), "accepted");
}

constexpr Index kBatch = 2;
const Shape kHeadsShape = {kBatch, kHeads, kRows, kHeadWidth};

/// Every order of the axes, dense, with gaps, or with axes in descending order.
std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (const auto& order : all_axis_orders()) {
    all.push_back({.order = order});
    all.push_back({.order = order, .offset = 3, .innermost = 2, .gap = 5});
    all.push_back({.order = order, .gap = 1, .reversed = {true, false, true, false}});
    all.push_back({.order = order, .gap = 2, .reversed = {false, true, false, true}});
  }
  return all;
}

/// The angles of a call: positions from one on, a list, or tables.
enum class Angles { consecutive, listed, listed_for_each_sequence, of_tables };

template <class T>
struct Turning {
  std::vector<std::int32_t> shared = {4, 0, 9, 4, 2, 3, 4};
  std::vector<std::int64_t> own = {4, 0, 9, 4, 2, 3, 4, 1, 1, 2, 3, 9, 8, 0};
  Tensor<fovea::Compute<T>> cosines, sines;
  fovea::RotaryCall<T> call;

  Turning(Angles angles, const Layout& of_tables) {
    const auto fill = [&](Tensor<fovea::Compute<T>>& table, double (*function)(double)) {
      table = Tensor<fovea::Compute<T>>({kBatch, 1, 10, kHeadWidth / 2}, of_tables);
      table.fill([&](Index b, Index, Index p, Index i) {
        return function(static_cast<double>(p * (i + 1) + b) / 3);
      });
    };
    if (angles == Angles::consecutive) call.first = 5;
    if (angles == Angles::listed) call.positions = shared;
    if (angles == Angles::listed_for_each_sequence) call.positions = own;
    if (angles != Angles::of_tables) return;
    call.positions = own;
    fill(cosines, [](double x) { return std::cos(x); });
    fill(sines, [](double x) { return std::sin(x); });
    call.cosines = cosines.view();
    call.sines = sines.view();
  }
};

/// Heads rotated token by token, each as a separate tensor at its position.
template <class T>
std::vector<T> turned_alone(const Rotary<T>& rotary, const Tensor<T>& x, const Turning<T>& by) {
  const Tensor<T> all = x.in({});
  for_each_index({kBatch, 1, kRows, 1}, [&](Index b, Index, Index n, Index) {
    fovea::RotaryCall<T> call = by.call;
    const auto at = [&](Index i) { return call.positions[static_cast<std::size_t>(i)]; };
    const std::vector<std::int64_t> position = {call.positions.empty() ? call.first + n
                                                : call.positions.size() == kRows
                                                    ? at(n)
                                                    : at(b * kRows + n)};
    call.positions = position;
    if (!call.cosines.empty()) {
      call.cosines = cut(call.cosines, 0, b, 1);
      call.sines = cut(call.sines, 0, b, 1);
    }
    rotary.turn(cut(cut(all.view(), 0, b, 1), 2, n, 1), call);
  });
  return all.values();
}

template <class T>
class Heads : public testing::Test {};
using Scalars = ScalarsAnd<Eigen::bfloat16, Eigen::half>;
TYPED_TEST_SUITE(Heads, Scalars);

/// Bits and gaps, in every layout of heads and tables, for every way to pass positions.
TYPED_TEST(Heads, MayBeAnywhereInMemory) {
  using T = TypeParam;
  fovea::ThreadPool pool(2);
  for (const Angles angles :
       {Angles::consecutive, Angles::listed, Angles::listed_for_each_sequence, Angles::of_tables}) {
    for (const RotaryPairing pairing : {RotaryPairing::halves, RotaryPairing::neighbours}) {
      const Rotary<T> rotary({.base = 50, .pairing = pairing}, kHeadWidth);
      Tensor<T> x(kHeadsShape);
      x.fill(gaussian(3));
      const std::vector<T> expected = turned_alone(rotary, x, Turning<T>(angles, {}));
      for (const Layout& layout : layouts()) {
        const Tensor<T> placed = x.in(layout);
        const Turning<T> turning(angles, layout);
        rotary.turn(placed.view(), turning.call, pool);
        ASSERT_TRUE(same_bits(placed.values(), expected))
            << fovea::to_string(placed.view().strides());
        ASSERT_EQ(placed.changed_gaps(), 0);
      }
    }
  }
}

/// Element types of positions, Eigen's tensors, the way back, and angles that are kept.
TEST(Rotary, PositionsOfEveryType) {
  const Rotary<double> rotary({.width = 8}, kHeadWidth);
  const auto turned_by = [&](const fovea::RotaryCall<double>& call) {
    const Activations x = drawn(kHeadsShape, 1);
    rotary.turn(x.view(), call);
    return x.values();
  };
  const auto expected = turned_by({.first = 7});
  const std::vector<int> narrow = {7, 8, 9, 10, 11, 12, 13};
  const std::vector<long long> wide(narrow.begin(), narrow.end());
  const std::array<long, 7> fixed = {7, 8, 9, 10, 11, 12, 13};
  EXPECT_TRUE(same_bits(turned_by({.positions = narrow}), expected));
  EXPECT_TRUE(same_bits(turned_by({.positions = std::span(wide)}), expected));
  EXPECT_TRUE(same_bits(turned_by({.positions = fixed}), expected));
  RotaryAngles<double> angles;
  for (int again = 0; again < 2; ++again) {
    EXPECT_TRUE(same_bits(turned_by({.first = 7, .angles = &angles}), expected));
    EXPECT_TRUE(same_bits(turned_by({.positions = narrow, .angles = &angles}), expected));
    EXPECT_FALSE(same_bits(turned_by({.first = 6, .angles = &angles}), expected));
  }
  const Activations x = drawn(kHeadsShape, 1);
  const Activations before = x.in({});
  rotary.turn(x.view(), {.positions = narrow});
  rotary.turn(x.view(), {.positions = narrow, .backward = true});
  EXPECT_TRUE(close_to(x.values(), before.values(), 1e-14));
}

/// <turned x, y> = <x, y turned backwards>, which makes the one the gradient of the other: also by
/// tables that are no cosines and sines of one angle.
TEST(Rotary, BackwardIsTheGradient) {
  for (const Angles angles : {Angles::listed, Angles::of_tables}) {
    Turning<double> turning(angles, {});
    if (angles == Angles::of_tables) turning.sines.fill(gaussian(8));
    const Activations x = drawn(kHeadsShape, 1), y = drawn(kHeadsShape, 2);
    const auto product = [](const Activations& a, const Activations& b) {
      double sum = 0;
      for (std::size_t i = 0; i < a.values().size(); ++i) sum += a.values()[i] * b.values()[i];
      return sum;
    };
    const Rotary<double> rotary({.pairing = RotaryPairing::neighbours}, kHeadWidth);
    const Activations turned_x = x.in({}), turned_y = y.in({});
    rotary.turn(turned_x.view(), turning.call);
    turning.call.backward = true;
    rotary.turn(turned_y.view(), turning.call);
    EXPECT_NEAR(product(turned_x, y), product(x, turned_y), 1e-12);
  }
}

TEST(Rotary, PackedSequencesRestartPositions) {
  const Activations packed = drawn({1, kHeads, kRows, kHeadWidth}, 1);
  const Activations apart = packed.in({});
  const std::vector<Index> ends = {0, 3, 3, kRows};
  const Rotary<double> rotary({}, kHeadWidth);
  rotary.turn(packed.view(), {.first = 2, .cu_seqlens = ends});
  rotary.turn(cut(apart.view(), 2, 0, 3), {.first = 2});
  rotary.turn(cut(apart.view(), 2, 3, kRows - 3), {.first = 2});
  EXPECT_TRUE(same_bits(packed.values(), apart.values()));
}

/// Nothing is written before all is checked.
TEST(Rotary, CallsThatAreRefused) {
  const Rotary<double> rotary({}, kHeadWidth);
  const Activations x = drawn(kHeadsShape, 1);
  const std::vector<double> before = x.values();
  const auto message = [&](const View<double>& heads, const fovea::RotaryCall<double>& call) {
    const std::string text = refusal([&] { rotary.turn(heads, call); });
    EXPECT_TRUE(same_bits(x.values(), before));
    return text;
  };
  const View<double> heads = x.view();
  EXPECT_EQ(message(cut(heads, 3, 0, 10), {}),
            "Rotary: heads has width 10; expected 12, the head width that it was constructed for");
  EXPECT_EQ(message({}, {}),
            "Rotary: heads is required: it was not given, or was passed without memory");
  const View<double> same_heads(heads.data(), kHeadsShape,
                                {heads.strides()[0], 0, heads.strides()[2], 1});
  EXPECT_EQ(
      message(same_heads, {}),
      "Rotary: heads has strides [252, 0, 12, 1] for 2x3x7x12; the elements of an output need "
      "different addresses");
  const std::vector<Index> eight(8);
  EXPECT_EQ(message(heads, {.positions = eight}),
            "Rotary: the number of positions is 8; expected 14, batch times rows of heads, or 7, "
            "the rows");
  std::vector<Index> far(7);
  far[3] = (Index{1} << 53) + 1;
  EXPECT_EQ(message(heads, {.positions = far}),
            "Rotary: positions[3] is 9007199254740993; expected a magnitude of at most 2^53, which "
            "double represents exactly");
  EXPECT_NE(message(heads, {.first = far[3]}).find("first is 9007199254740993"), std::string::npos);
  EXPECT_NE(message(heads, {.first = far[3] - 2}).find("last row is 9007199254740997"),
            std::string::npos);
  const std::vector<Index> ends = {0, 7};
  EXPECT_EQ(message(heads, {.cu_seqlens = ends}),
            "Rotary: heads has batch 2; expected 1, since cu_seqlens is given");
  const View<double> one = cut(heads, 0, 0, 1);
  EXPECT_EQ(message(one, {.positions = std::span(far).first(7), .cu_seqlens = ends}),
            "Rotary: cu_seqlens must not be given: positions are given");
  const std::vector<Index> short_ends = {0, 6};
  EXPECT_NE(message(one, {.cu_seqlens = short_ends}).find("cu_seqlens"), std::string::npos);
}

TEST(Rotary, TablesThatAreRefused) {
  const Rotary<double> rotary({}, kHeadWidth);
  const Activations x = drawn(kHeadsShape, 1);
  const std::vector<double> before = x.values();
  const auto message = [&](auto&& change) {
    Turning<double> turning(Angles::of_tables, {});
    change(turning);
    const std::string text = refusal([&] { rotary.turn(x.view(), turning.call); });
    EXPECT_TRUE(same_bits(x.values(), before));
    return text;
  };
  using Change = Turning<double>&;
  const Tensor<double> three({kBatch + 1, 1, 10, kHeadWidth / 2});
  EXPECT_EQ(message([](Change t) { t.call.cosines = {}; }),
            "Rotary: cosines is required: it was not given, or was passed without memory");
  EXPECT_EQ(message([](Change t) { t.call.sines = {}; }),
            "Rotary: sines is empty: it was passed without memory; expected 2x1x10x6, the shape of "
            "cosines");
  EXPECT_EQ(message([&](Change t) { t.call.cosines = three.view(); }),
            "Rotary: cosines has batch 3; expected 2, the batch of heads, or 1");
  EXPECT_EQ(message([](Change t) { t.call.cosines = cut(t.call.cosines, 3, 0, 5); }),
            "Rotary: cosines has width 5; expected 6, the number of rotated pairs of a head");
  EXPECT_EQ(message([](Change t) { t.call.sines = cut(t.call.sines, 2, 0, 9); }),
            "Rotary: sines has shape 2x1x9x6; expected 2x1x10x6, the shape of cosines");
  EXPECT_EQ(message([](Change t) { t.own[4] = -1; }),
            "Rotary: positions[4] is -1; expected 0 to 9, the rows of the tables");
  EXPECT_EQ(message([](Change t) { t.own[13] = 10; }),
            "Rotary: positions[13] is 10; expected 0 to 9, the rows of the tables");
  EXPECT_EQ(message([](Change t) {
              t.call.positions = {};
              t.call.first = 4;
            }),
            "Rotary: the position of the last row is 10; expected 0 to 9, the rows of the tables");
  EXPECT_EQ(message([&](Change t) {
              t.call.sines = View<const double>(x.view().data(), t.sines.shape());
            }),
            "Rotary: heads overlaps sines; outputs must not alias inputs or each other");
}

using Layer = fovea::MultiHead<fovea::FullAttention, double>;

Layer rotary_layer(RotaryPairing pairing) {
  fovea::Initialiser initialiser(1);
  Layer layer(fovea::FullAttention{{.causal = true}},
              {.width = 6,
               .heads = 2,
               .key_heads = 1,
               .head_width = 4,
               .rotary = RotaryOptions{.base = 30, .pairing = pairing, .magnitude = 1.5}},
              initialiser);
  draw_parameters(layer, 5);
  return layer;
}

TEST(Rotary, GradientsOfALayer) {
  for (const RotaryPairing pairing : {RotaryPairing::halves, RotaryPairing::neighbours}) {
    Layer layer = rotary_layer(pairing);
    expect_layer_gradients(layer, {2, 1, 5, 6}, {2, 1, 5, 6}, alone,
                           {.tolerance = 1e-6, .rows_on_threads = 300});
  }
}

TEST(Rotary, DecodersContinueAtTheirPosition) {
  for (const RotaryPairing pairing : {RotaryPairing::halves, RotaryPairing::neighbours}) {
    const Layer layer = rotary_layer(pairing);
    expect_decoded_bits(layer, drawn({2, 1, 50, 6}, 1), {{1}, {13, 1, 1}, {50}});
  }
}

}  // namespace fovea_test::layers_rotary
