// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// Decoders of softmax attention beyond the conformance suite: the bits of `forward` for scalars of
/// 16 bits, any width and number of heads, over segments, with heads of different patterns, for any
/// executor and layout; also after rolling back, and in a fork.
#include "fovea/attention/softmax/decoder.hpp"

#include "attention/decoding.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_decoder {

using fovea::FixedAttention;
using fovea::HeadAssignment;
using fovea::SparseAttention;
using fovea::StridedAttention;

static_assert(fovea::IncrementalAttention<FullAttention, float>);
static_assert(fovea::IncrementalAttention<LocalAttention, double>);
static_assert(fovea::IncrementalAttention<FullAttention, Eigen::bfloat16>);
static_assert(fovea::IncrementalAttention<StridedAttention, float>);
static_assert(fovea::IncrementalAttention<SparseAttention, double>);
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
constexpr HeadAssignment kAssignments[] = {HeadAssignment::separate, HeadAssignment::merged,
                                           HeadAssignment::only_first, HeadAssignment::only_second};
constexpr Beside kEverything{true, true, true, true};

template <class T>
class DecoderOf : public testing::Test {};
using Scalars = ScalarsAnd<Eigen::bfloat16, Eigen::half>;
TYPED_TEST_SUITE(DecoderOf, Scalars);

/// One token after the other, chunks, and all at once; rows on both sides of kMostRows.
const std::vector<std::vector<Index>> kDivisions = {
    {1}, {3, 1, 70, 1, 1, 8, 130, 2}, {1000}, {64, 65, 16, 17}};

TYPED_TEST(DecoderOf, AnyStepSizes) {
  for (const auto& division : kDivisions) {
    expect_forward<TypeParam>(kCausal, {2, 4, 2, 290, 290, 17, 9}, division);
    expect_forward<TypeParam>(kFull, {1, 3, 3, 270, 270, 64, 64}, division, kEverything);
    expect_forward<TypeParam>(kCausal, {1, 8, 1, 140, 140, 130, 33}, division);
    expect_forward<TypeParam>(FullAttention{{.window = {100, 40}, .scale = -0.3}},
                              {1, 4, 2, 420, 420, 5, 40}, division);
    for (const Index left : {6, 50}) {
      expect_forward<TypeParam>(LocalAttention{{.left = left}}, {2, 4, 2, 200, 200, 27, 19},
                                division);
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

/// Strided keys, and each summary column, fill several segments.
TEST(Decoder, PatternsOverSegments) {
  for (const HeadAssignment heads : {HeadAssignment::separate, HeadAssignment::merged}) {
    const AttentionShape shape{1, 2, 1, 8300, 8300, 3, 3};
    const std::vector<Index> division = {4090, 1, 1, 5, 90, 4000, 1, 10, 1, 80};
    expect_forward<float>(StridedAttention{{.stride = 2, .heads = heads}}, shape, division);
    expect_forward<float>(FixedAttention{{.stride = 4, .summary = 2, .heads = heads}}, shape,
                          division);
  }
}

/// Heads of one key head that see different keys, band, window, passes and list side by side.
TYPED_TEST(DecoderOf, HeadsOfDifferentPatterns) {
  const SparseAttention op{
      {.patterns = {fovea::Window{4, 1}, fovea::strided_merged(6), fovea::DilatedWindow{5, 0, 3},
                    fovea::fixed_merged({16, 2, 0, true}), fovea::Causal{}}}};
  // Bounded and summaries of one stride: a ring.
  const SparseAttention ring{{.patterns = {fovea::Window{4, 1}, fovea::Window{60, 0},
                                           fovea::fixed_merged({16, 2, 0, true}),
                                           fovea::FixedSummary{{16, 3, 1, false}}}}};
  for (const auto& division : kDivisions) {
    for (const Index key_heads : {1, 2, 6}) {
      expect_forward<TypeParam>(op, {1, 12, key_heads, 200, 200, 8, 8}, division);
    }
    expect_forward<TypeParam>(ring, {1, 8, 4, 300, 300, 8, 8}, division);
  }
}

/// Blocks of keys that are all there with the first tokens.
TEST(Decoder, ListedBlocks) {
  const fovea::BlockRows rows = {{0, 1, 3, 3, 6, 8}, {0, 0, 1, 0, 2, 3, 1, 4}};
  for (const bool causal : {true, false}) {
    const fovea::BlockSparseAttention op{{.block = 60, .layouts = {rows}, .causal = causal}};
    expect_forward<float>(op, {1, 2, 2, 300, 300, 8, 8}, {260, 1, 5, 34});
  }
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

template <class Op>
void expect_same_bits_with_any_executor(const Op& op, const AttentionShape& shape,
                                        const std::vector<Index>& lengths) {
  fovea::ThreadPool two(2);
  fovea::ThreadPool four(4);
  Backwards backwards;
  Shuffled shuffled;
  const TokenTensors<float> expected(shape);
  auto serial = op.template decoder<float>(expected.decoder_shape());
  expected.decode(serial, lengths);
  for (AnyExecutor executor : {AnyExecutor::of(two), AnyExecutor::of(four),
                               AnyExecutor::of(backwards), AnyExecutor::of(shuffled)}) {
    const TokenTensors<float> decoded(shape);
    auto decoder = op.template decoder<float>(decoded.decoder_shape());
    decoded.decode(decoder, lengths, executor);
    EXPECT_TRUE(same_results(decoded, expected));
  }
}

TEST(Decoder, SameBitsWithAnyExecutor) {
  for (const Index key_heads : {1, 2}) {
    expect_same_bits_with_any_executor(kCausal, {1, 2, key_heads, 6200, 6200, 40, 24},
                                       {6180, 1, 1, 4});
  }
  for (const HeadAssignment heads : {HeadAssignment::separate, HeadAssignment::merged}) {
    expect_same_bits_with_any_executor(FixedAttention{{.stride = 8, .summary = 3, .heads = heads}},
                                       {1, 4, 2, 6200, 6200, 8, 8}, {6000, 1, 100, 1, 9, 1});
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
  for (const HeadAssignment heads : kAssignments) {
    expect_append_then_step<double>(FixedAttention{{.stride = 24, .summary = 5, .heads = heads}});
  }
}

/// More new tokens than the ring can hold, of which the first are outside of every row's window.
TYPED_TEST(DecoderOf, TokensThatNoRowSees) {
  const LocalAttention op{{.left = 6}};
  const AttentionShape shape{1, 2, 1, 300, 300, 6, 7};
  const TokenTensors<TypeParam> decoded(shape);
  const TokenTensors<TypeParam> expected(shape);
  auto decoder = op.template decoder<TypeParam>(decoded.decoder_shape());
  decoded.step(decoder, 0, 5);
  AllInputs<TypeParam> in = decoded.queries(200, 100, 300);
  in.k = decoded.keys(5, 295);
  in.v = decoded.values(5, 295);
  decoder.step(in, decoded.out_rows(200, 100), decoded.saved_rows(200, 100));
  expected.forward(op, 0, 5);
  expected.forward(op, 200, 100);
  EXPECT_TRUE(same_results(decoded, expected));
}

TYPED_TEST(DecoderOf, RollBackAndFork) {
  for (const Index tokens : {1, 5, 64}) {
    expect_rolled_back<TypeParam>(kCausal, tokens);
    expect_rolled_back<TypeParam>(LocalAttention{{.left = 50}}, tokens);
    expect_rolled_back<TypeParam>(LocalAttention{{.left = 5, .right = 4}}, tokens);
    for (const HeadAssignment heads : kAssignments) {
      expect_rolled_back<TypeParam>(StridedAttention{{.stride = 11, .heads = heads}}, tokens);
      for (const Index summary : {1, 5, 11}) {
        expect_rolled_back<TypeParam>(
            FixedAttention{{.stride = 11, .summary = summary, .heads = heads}}, tokens);
      }
    }
  }
}

/// Forked and rolled back as far as the ring goes, the summary has all tokens before.
TEST(Decoder, RollsBackToTheEndOfTheRing) {
  const FixedAttention op{{.stride = 20, .summary = 4, .heads = HeadAssignment::merged}};
  const AttentionShape shape{1, 2, 1, 500, 500, 4, 4};
  const TokenTensors<float> decoded(shape);
  const TokenTensors<float> expected(shape);
  auto decoder = op.decoder<float>(decoded.decoder_shape());
  decoded.decode(decoder, {1});
  // It holds 19 + 1 + 64 tokens, from 416 on.
  decoder.rollback(436);
  auto fork = decoder.fork();
  for (auto* each : {&decoder, &fork}) {
    each->step(decoded.queries(435, 1, 436), decoded.out_rows(435, 1), decoded.saved_rows(435, 1));
    decoded.decode(*each, {7, 1});
    expected.forward(op, 0, 500);
    EXPECT_TRUE(same_results(decoded, expected));
    each->rollback(436);
  }
}

/// Tensors without elements may have no memory.
TYPED_TEST(DecoderOf, ZeroWidthsWithoutMemory) {
  using T = TypeParam;
  const auto tensor = [](Index heads, Index n) { return View<T>(nullptr, {2, heads, n, 0}); };
  auto decoder = kFull.decoder<T>({.batch = 2, .query_heads = 4, .key_heads = 2});
  decoder.append(tensor(2, 3), tensor(2, 3));
  decoder.step({tensor(4, 2), tensor(2, 5), tensor(2, 5)}, tensor(4, 2));
  EXPECT_EQ(decoder.length(), 8);
}

}  // namespace fovea_test::attention_decoder
