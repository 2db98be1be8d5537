// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// A decoder gives the bits of `forward`: for every pattern, option, scalar, level, executor,
/// layout and division of the tokens; also after rolling back, and in a fork.
#include "fovea/attention/softmax/decoder.hpp"

#include <cmath>
#include <limits>

#include "attention/decoding.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_decoder {

static_assert(fovea::IncrementalAttention<FullAttention, float>);
static_assert(fovea::IncrementalAttention<LocalAttention, double>);
static_assert(fovea::IncrementalAttention<FullAttention, Eigen::bfloat16>);
static_assert(!fovea::IncrementalAttention<int, float>);

/// Has exactly the members that IncrementalAttention requires.
struct ArchetypeDecoder {
  ArchetypeDecoder() = default;
  ArchetypeDecoder(ArchetypeDecoder&&) = default;
  void append(const fovea::KeyValueTokens<float>&) {}
  void step(const fovea::LinearInputs<float>&, const View<float>&, const fovea::LinearSaved<float>&,
            fovea::Serial&) {}
  static Index length() { return 0; }
  void rollback(Index) {}
  ArchetypeDecoder fork() const { return {}; }
};
struct ArchetypeIncremental {
  template <class T>
  using Tokens = fovea::KeyValueTokens<T>;
  static const char* name() { return "Archetype"; }
  template <class T>
  using Inputs = fovea::LinearInputs<T>;
  template <class T>
  using Saved = fovea::LinearSaved<T>;
  using Shape = AttentionShape;
  using DecoderShape = fovea::DecoderShape;
  static void check(const Inputs<float>&, const View<float>&, const Saved<float>&) {}
  void forward(const Inputs<float>&, const View<float>&, const Saved<float>&,
               fovea::Serial&) const {}
  template <class T>
  Index workspace_bytes(const AttentionShape&, Index) const {
    return 0;
  }
  static Index attended_pairs(const AttentionShape&, Index) { return 0; }
  template <class T>
  ArchetypeDecoder decoder(const DecoderShape&) const {
    return {};
  }
};
static_assert(fovea::IncrementalAttention<ArchetypeIncremental, float>);
static_assert(!fovea::IncrementalAttention<ArchetypeIncremental, double>);

const FullAttention kFull;
const FullAttention kCausal{{.causal = true}};

template <class T>
class DecoderOf : public testing::Test {};
using Scalars = ScalarsAnd<Eigen::bfloat16, Eigen::half>;
TYPED_TEST_SUITE(DecoderOf, Scalars);

/// One token after the other, chunks, and all at once; rows on both sides of kMostRows.
const std::vector<std::vector<Index>> kDivisions = {
    {1}, {3, 1, 70, 1, 1, 8, 130, 2}, {1000}, {64, 65, 16, 17}};

TYPED_TEST(DecoderOf, FullAttentionForAnyStepSizes) {
  for (const auto& division : kDivisions) {
    expect_forward<TypeParam>(kCausal, {2, 4, 2, 290, 290, 17, 9}, division);
    expect_forward<TypeParam>(kFull, {1, 3, 3, 270, 270, 64, 64}, division);
    expect_forward<TypeParam>(kCausal, {1, 8, 1, 140, 140, 130, 33}, division);
    expect_forward<TypeParam>(FullAttention{{.window = {100, 40}, .scale = -0.3}},
                              {1, 4, 2, 420, 420, 5, 40}, division);
  }
}

TYPED_TEST(DecoderOf, WindowsForAnyStepSizes) {
  for (const auto& division : kDivisions) {
    for (const auto& op :
         {LocalAttention{}, LocalAttention{{.left = 4, .right = 4}}, LocalAttention{{.left = 31}},
          LocalAttention{{.left = 32}}, LocalAttention{{.left = 70, .right = 3}},
          LocalAttention{{.left = 0, .right = 90}}}) {
      expect_forward<TypeParam>(op, {1, 4, 2, 390, 390, 32, 32}, division);
    }
  }
}

TYPED_TEST(DecoderOf, OddWidths) {
  for (const Index width : {0, 1, 2, 15, 16, 31, 32, 33, 63, 65, 96, 128, 129}) {
    expect_forward<TypeParam>(kCausal, {1, 2, 1, 150, 150, width, 150 - width}, {140, 1, 3});
    expect_forward<TypeParam>(kCausal, {1, 1, 1, 70, 70, 150 - width, width}, {60, 1});
  }
}

TYPED_TEST(DecoderOf, RowsOfOneKeyHead) {
  for (const Index heads : {1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 64, 65}) {
    expect_forward<TypeParam>(kCausal, {1, heads, 1, 200, 200, 8, 8}, {190, 1, 2, 7});
  }
}

/// Around the borders of tiles, chains and segments.
TYPED_TEST(DecoderOf, Borders) {
  for (const Index border : {64, 128, 256, 2048, 4096}) {
    expect_forward<TypeParam>(kCausal, {1, 2, 1, border + 3, border + 3, 4, 4},
                              {border - 3, 1, 1, 1, 1, 1});
    expect_forward<TypeParam>(kFull, {1, 2, 2, border + 3, border + 3, 4, 4},
                              {border - 3, 1, 3, 2});
    expect_forward<TypeParam>(LocalAttention{{.left = 300, .right = 2}},
                              {1, 2, 2, border + 3, border + 3, 4, 4}, {border - 3, 1, 3, 2});
  }
}

TEST(Decoder, OptionsForAnyStepSizes) {
  const fovea::Dropout dropout{.probability = 0.3, .seed = 7};
  for (const auto& division : kDivisions) {
    for (const Beside& beside : {Beside{.bias = true}, Beside{.mask = true}, Beside{.alibi = true},
                                 Beside{.sink = true}, Beside{true, true, true, true}}) {
      for (const Index heads : {2, 6}) {
        const AttentionShape shape{2, heads, 2, 210, 210, 16, 20};
        expect_forward<float>(kCausal, shape, division, beside);
        expect_forward<double>(LocalAttention{{.left = 40, .right = 1}}, shape, division, beside);
        expect_forward<float>(LocalAttention{{.left = 6}}, shape, division, beside);
        expect_forward<Eigen::bfloat16>(kFull, shape, division, beside);
        expect_forward<float>(FullAttention{{.soft_cap = 2.0, .dropout = dropout}}, shape, division,
                              beside);
      }
    }
  }
}

/// A window without a right side shows all later keys to a query, also beyond the ring's capacity.
TEST(Decoder, WindowsWithoutARightSide) {
  const FullAttention op{{.window = {.left = 10}}};
  for (const auto& division : kDivisions) {
    expect_forward<float>(op, {1, 2, 1, 500, 500, 4, 4}, division);
  }
}

TEST(Decoder, OptionsOverSegments) {
  for (const Beside& beside : {Beside{.mask = true}, Beside{.bias = true, .alibi = true}}) {
    expect_forward<float>(kCausal, {1, 2, 1, 2200, 2200, 4, 4}, {2040, 1, 9, 1, 149}, beside);
  }
}

/// 4200 steps of one token against one call of forward.
TEST(Decoder, TokenByToken) {
  at_each_level([] {
    const AttentionShape shape{1, 2, 1, 4200, 4200, 3, 5};
    const TokenTensors<float> decoded(shape);
    const TokenTensors<float> expected(shape);
    auto decoder = kCausal.decoder<float>(decoded.decoder_shape());
    decoded.decode(decoder, {1});
    expected.forward(kCausal, 0, 4200);
    EXPECT_TRUE(same_results(decoded, expected));
  });
}

TEST(Decoder, ManyTokensWithAWindow) {
  const AttentionShape shape{1, 1, 1, 65536, 65536, 4, 4};
  const LocalAttention op{{.left = 70}};
  const TokenTensors<float> decoded(shape);
  const TokenTensors<float> expected(shape);
  auto decoder = op.decoder<float>(decoded.decoder_shape());
  decoded.decode(decoder, {1});
  expected.forward(op, 0, 65536);
  EXPECT_TRUE(same_results(decoded, expected));
}

TEST(Decoder, SameBitsWithAnyExecutor) {
  fovea::ThreadPool two(2);
  fovea::ThreadPool four(4);
  Backwards backwards;
  Shuffled shuffled;
  for (const Index key_heads : {1, 2}) {
    const AttentionShape shape{1, 2, key_heads, 6200, 6200, 40, 24};
    const TokenTensors<float> expected(shape);
    auto serial = kCausal.decoder<float>(expected.decoder_shape());
    expected.decode(serial, {6180, 1, 1, 4});
    for (AnyExecutor executor : {AnyExecutor::of(two), AnyExecutor::of(four),
                                 AnyExecutor::of(backwards), AnyExecutor::of(shuffled)}) {
      const TokenTensors<float> decoded(shape);
      auto decoder = kCausal.decoder<float>(decoded.decoder_shape());
      decoded.decode(decoder, {6180, 1, 1, 4}, executor);
      EXPECT_TRUE(same_results(decoded, expected));
    }
  }
}

TEST(Decoder, SameBitsInAnyLayout) {
  const AttentionShape shape{2, 4, 2, 150, 150, 20, 12};
  const TokenTensors<float> expected(shape);
  auto dense = kCausal.decoder<float>(expected.decoder_shape());
  expected.decode(dense, {100, 1, 49});
  for (const auto& order : all_axis_orders()) {
    const TokenTensors<float> decoded(shape, {},
                                      {.order = order, .offset = 3, .innermost = 2, .gap = 5});
    auto decoder = kCausal.decoder<float>(decoded.decoder_shape());
    decoded.decode(decoder, {100, 1, 49});
    EXPECT_TRUE(same_results(decoded, expected));
  }
}

TEST(Decoder, AppendThenStep) {
  expect_append_then_step<double>(kCausal);
  expect_append_then_step<double>(FullAttention{{.window = {50, 2}}});
}

TYPED_TEST(DecoderOf, RollBackAndFork) {
  for (const Index tokens : {1, 5, 64}) {
    expect_rolled_back<TypeParam>(kCausal, tokens);
    expect_rolled_back<TypeParam>(LocalAttention{{.left = 50}}, tokens);
    expect_rolled_back<TypeParam>(LocalAttention{{.left = 5, .right = 4}}, tokens);
  }
}

TEST(Decoder, ClearRestarts) {
  const AttentionShape shape{1, 1, 1, 300, 300, 8, 8};
  for (const FullAttention& op : {kCausal, FullAttention{{.causal = true, .window = {20, 0}}}}) {
    const TokenTensors<float> first(shape, {}, {}, 10);
    const TokenTensors<float> decoded(shape);
    const TokenTensors<float> expected(shape);
    auto decoder = op.decoder<float>(decoded.decoder_shape());
    first.decode(decoder, {7});
    const Index bytes = decoder.memory_bytes();
    decoder.clear();
    EXPECT_EQ(decoder.length(), 0);
    decoded.decode(decoder, {7});
    EXPECT_EQ(decoder.memory_bytes(), bytes);
    auto fresh = op.decoder<float>(decoded.decoder_shape());
    expected.decode(fresh, {7});
    EXPECT_TRUE(same_results(decoded, expected));
  }
}

/// A NaN reaches the rows that see it, and no bit of the others.
TEST(Decoder, NaNReachesRowsThatSeeIt) {
  at_each_level([] {
    for (const bool in_keys : {true, false}) {
      const AttentionShape shape{1, 1, 1, 200, 200, 8, 8};
      const LocalAttention op{{.left = 40}};
      const TokenTensors<float> decoded(shape);
      const TokenTensors<float> expected(shape);
      (in_keys ? decoded.k : decoded.v)(0, 0, 100, 3) = NAN;
      auto decoder = op.decoder<float>(decoded.decoder_shape());
      decoded.decode(decoder, {1, 2, 5});
      expected.forward(op, 0, 200);
      for (Index row = 0; row < 200; ++row) {
        const bool sees = row >= 100 && row <= 140;
        for (Index c = 0; c < 8; ++c) {
          const float x = decoded.out(0, 0, row, c);
          if (sees && (in_keys || c == 3)) {
            EXPECT_TRUE(std::isnan(x)) << row;
          } else {
            EXPECT_EQ(x, expected.out(0, 0, row, c)) << row;
          }
        }
      }
    }
  });
}

/// Hidden by a mask, NaN changes no bit, and a row that sees nothing is 0.
TEST(Decoder, HiddenNaNDoesNotChangeBits) {
  at_each_level([] {
    const AttentionShape shape{1, 3, 1, 150, 150, 8, 8};
    TokenTensors<float> poisoned(shape, {.mask = true});
    TokenTensors<float> clean(shape, {.mask = true});
    for (const TokenTensors<float>* tokens : {&poisoned, &clean}) {
      tokens->mask.fill([](Index, Index, Index i, Index j) { return i != 140 && j % 10 != 7; });
    }
    for (Index j = 7; j < 150; j += 10) {
      for (Index c = 0; c < 8; ++c) poisoned.k(0, 0, j, c) = poisoned.v(0, 0, j, c) = NAN;
    }
    for (const TokenTensors<float>* tokens : {&poisoned, &clean}) {
      auto decoder = kCausal.decoder<float>(tokens->decoder_shape());
      tokens->decode(decoder, {120, 1, 5});
    }
    EXPECT_TRUE(same_results(poisoned, clean));
    EXPECT_EQ(poisoned.out(0, 1, 140, 2), 0.0f);
    EXPECT_EQ(poisoned.lse(0, 1, 140, 0), -std::numeric_limits<float>::infinity());
  });
}

}  // namespace fovea_test::attention_decoder
