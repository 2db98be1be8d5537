// SPDX-License-Identifier: MIT
// fovea_test(HEAP)
/// \file
/// Refusals of decoders: exact messages, with nothing changed; and their memory.
#include <gtest/gtest.h>

#include <limits>
#include <new>
#include <string>

#include "attention/decoding.hpp"
#include "fovea/patterns/enumerated.hpp"
#include "support/memory.hpp"
#include "support/refusal.hpp"

namespace fovea_test::attention_decoder_errors {

const DecoderShape kSizes = {
    .batch = 2, .query_heads = 4, .key_heads = 2, .width = 5, .value_width = 3};

class BadDecoderInput : public SpoiltStep<fovea::Decoder<FullAttention, float>> {
 protected:
  BadDecoderInput() : SpoiltStep(FullAttention{}.decoder<float>(kSizes)) {}

  void expect(const std::string& message) { SpoiltStep::expect("FullAttention: " + message); }
};

TEST_F(BadDecoderInput, Queries) {
  in_.q = {in_.q.data(), {1, 4, 2, 5}};
  expect("q has batch 1; expected 2, the batch of the decoder");
  in_.q = {in_.q.data(), {2, 2, 2, 5}};
  expect("q has 2 heads; expected 4, the query_heads of the decoder");
  in_.q = {in_.q.data(), {2, 4, 2, 4}};
  expect("q has width 4; expected 5, the width of the decoder");
  in_.q = cut(tokens_.q.view(), 2, 0, 13);
  expect("q has 13 rows; expected at most 12, the tokens in the decoder");
}

TEST_F(BadDecoderInput, KeysAndValues) {
  in_.k = {in_.k.data(), {1, 2, 2, 5}};
  expect("k has batch 1; expected 2, the batch of the decoder");
  in_.k = {in_.k.data(), {2, 1, 2, 5}};
  expect("k has 1 head; expected 2, the key_heads of the decoder");
  in_.k = {in_.k.data(), {2, 2, 2, 6}};
  expect("k has width 6; expected 5, the width of the decoder");
  in_.k = {};
  expect("k is required: it was not given, or was passed without memory");
  in_.v = {in_.v.data(), {3, 2, 2, 3}};
  expect("v has batch 3; expected 2, the batch of the decoder");
  in_.v = {in_.v.data(), {2, 4, 2, 3}};
  expect("v has 4 heads; expected 2, the key_heads of the decoder");
  in_.v = {in_.v.data(), {2, 2, 2, 2}};
  expect("v has width 2; expected 3, the value_width of the decoder");
  in_.v = {in_.v.data(), {2, 2, 1, 3}};
  expect("v has 1 row; expected 2, the rows of k");
}

TEST_F(BadDecoderInput, InputsThatADecoderDoesNotSupport) {
  const std::vector<Index> lengths = {12, 12};
  in_.key_lengths = lengths;
  expect("key_lengths must not be given: a decoder tracks its own length");
  in_.cu_seqlens_q = lengths;
  expect("cu_seqlens must not be given: a decoder does not support packed sequences");
  in_.cu_seqlens_k = lengths;
  expect("cu_seqlens must not be given: a decoder does not support packed sequences");
}

TEST_F(BadDecoderInput, Options) {
  const Tensor<float> bias({1, 1, 2, 10});
  in_.bias = bias.view();
  expect("bias has width 10; expected 1 or 12, the rows of k");
  const std::vector<float> three(3);
  in_.sink = three;
  expect("the number of sinks is 3; expected 4, the heads of q, or 0");
  in_.alibi_slopes = three;
  expect("the number of alibi_slopes is 3; expected 4, the heads of q, or 0");
}

TEST_F(BadDecoderInput, Outputs) {
  out_ = tokens_.out_rows(10, 1);
  expect("out has shape 2x4x1x3; expected 2x4x2x3, to match the inputs");
  out_ = {const_cast<float*>(in_.q.data()), {2, 4, 2, 3}};
  expect("out overlaps q; outputs must not alias inputs or each other");
  out_ = {const_cast<float*>(in_.k.data()), {2, 4, 2, 3}};
  expect("out overlaps k; outputs must not alias inputs or each other");
  saved_.lse = {const_cast<float*>(in_.v.data()), {2, 4, 2, 1}};
  expect("lse overlaps v; outputs must not alias inputs or each other");
  saved_.lse = {out_.data(), {2, 4, 2, 1}};
  expect("lse overlaps out; outputs must not alias inputs or each other");
}

TEST_F(BadDecoderInput, Append) {
  const auto append = [&](const Shape& k, const Shape& v) {
    const std::string message = refusal([&] {
      decoder_.append({.k = {in_.k.data(), k}, .v = {in_.v.data(), v}});
    });
    EXPECT_EQ(decoder_.length(), 10);
    return message;
  };
  EXPECT_EQ(append({2, 3, 2, 5}, {2, 2, 2, 3}),
            "FullAttention: k has 3 heads; expected 2, the key_heads of the decoder");
  EXPECT_EQ(append({2, 2, 2, 5}, {2, 2, 2, 4}),
            "FullAttention: v has width 4; expected 3, the value_width of the decoder");
  EXPECT_EQ(append({2, 2, 2, 5}, {1, 2, 2, 3}),
            "FullAttention: v has batch 1; expected 2, the batch of the decoder");
  EXPECT_EQ(append({2, 2, 2, 5}, {2, 2, 3, 3}),
            "FullAttention: v has 3 rows; expected 2, the rows of k");
}

TEST_F(BadDecoderInput, RollBackAndReserve) {
  EXPECT_EQ(refusal([&] { decoder_.rollback(11); }),
            "FullAttention: rollback is 11; expected 0 to 10, the tokens in the decoder");
  EXPECT_EQ(refusal([&] { decoder_.rollback(-1); }),
            "FullAttention: rollback is -1; expected 0 to 10, the tokens in the decoder");
  EXPECT_EQ(refusal([&] { decoder_.reserve(-1); }),
            "FullAttention: reserve is -1; expected at least 0");
  EXPECT_EQ(decoder_.length(), 10);
  decoder_.rollback(10);
  decoder_.rollback(0);
  EXPECT_EQ(refusal([&] { decoder_.step({in_.q}, out_); }),
            "FullAttention: the length of the decoder is 0; expected at least one token");
}

TEST(DecoderErrors, Options) {
  const auto made = [](const auto& op, const DecoderShape& sizes) {
    return refusal([&] { static_cast<void>(op.template decoder<float>(sizes)); });
  };
  EXPECT_EQ(made(FullAttention{{.alignment = fovea::CausalAlignment::top_left}}, kSizes),
            "FullAttention: alignment is top_left; expected bottom_right or key_length: the last "
            "query of a decoder is its last token");
  EXPECT_EQ(made(LocalAttention{{.left = -1}}, kSizes),
            "LocalAttention: left is -1; expected at least 0 keys");
  EXPECT_EQ(made(FullAttention{{.soft_cap = 0.0}}, kSizes),
            "FullAttention: soft_cap is 0; expected more than 0 and finite in the inputs' type");
  DecoderShape sizes = kSizes;
  sizes.key_heads = 3;
  EXPECT_EQ(made(FullAttention{}, sizes),
            "FullAttention: key_heads is 3; expected a divisor of the 4 query_heads");
  sizes.key_heads = 0;
  EXPECT_EQ(made(FullAttention{}, sizes),
            "FullAttention: key_heads is 0; expected a divisor of the 4 query_heads");
  for (const auto& [name, member] : {std::pair{"batch", &DecoderShape::batch},
                                     {"query_heads", &DecoderShape::query_heads},
                                     {"key_heads", &DecoderShape::key_heads},
                                     {"width", &DecoderShape::width},
                                     {"value_width", &DecoderShape::value_width},
                                     {"reserve", &DecoderShape::reserve},
                                     {"rollback_tokens", &DecoderShape::rollback_tokens}}) {
    sizes = kSizes;
    sizes.*member = -1;
    EXPECT_EQ(made(FullAttention{}, sizes),
              std::string("FullAttention: ") + name + " is -1; expected at least 0");
  }
}

TEST(DecoderErrors, RollbackBeyondTheRing) {
  const LocalAttention op{{.left = 10}};
  const AttentionShape shape = {1, 1, 1, 500, 500, 2, 2};
  const TokenTensors<float> tokens(shape);
  auto decoder = op.decoder<float>({.width = 2, .value_width = 2, .rollback_tokens = 100});
  tokens.decode(decoder, {50});
  // It holds left + 1 + 64 + rollback_tokens = 175 tokens, from 325 on.
  EXPECT_EQ(refusal([&] { decoder.rollback(335); }),
            "LocalAttention: rollback is 335; expected at least 336, or 0: earlier keys have left "
            "the window (see rollback_tokens)");
  EXPECT_EQ(
      refusal([&] { decoder.step(tokens.queries(334, 166, 500), tokens.out_rows(334, 166)); }),
      "LocalAttention: q has 166 rows; expected at most 165: earlier keys have left the window");
  decoder.step(tokens.queries(335, 165, 500), tokens.out_rows(335, 165));
  decoder.rollback(336);
  const TokenTensors<float> expected(shape);
  decoder.step(tokens.queries(335, 1, 336), tokens.out_rows(335, 1));
  tokens.decode(decoder, {1, 30});
  expected.forward(op, 0, 500);
  for (Index row = 335; row < 500; ++row) {
    EXPECT_EQ(tokens.out(0, 0, row, 1), expected.out(0, 0, row, 1)) << row;
  }
}

/// Options that refer to future positions are accepted until these are reached; impossible ones are
/// refused at once.
TEST(DecoderErrors, PatternsOfPositions) {
  const fovea::BlockRows rows = {{0, 1, 3}, {0, 0, 7}};
  const TokenTensors<float> tokens({1, 1, 1, 20, 20, 2, 2});
  auto blocks = fovea::BlockSparseAttention{{.block = 10, .layouts = {rows}}}.decoder<float>(
      tokens.decoder_shape());
  auto globals = fovea::LongformerAttention{{.left = 2, .global = {5, 90}}}.decoder<float>(
      tokens.decoder_shape());
  tokens.decode(blocks, {1, 3});
  tokens.decode(globals, {1, 3});
  EXPECT_EQ(refusal([&] {
              static_cast<void>(
                  fovea::BlockSparseAttention{{.block = 0, .layouts = {rows}}}.decoder<float>({}));
            }),
            "BlockSparseAttention: block is 0; expected at least 1");
  EXPECT_EQ(
      refusal([&] {
        static_cast<void>(
            fovea::BlockSparseAttention{{.block = 3, .layouts = {{{0, 2}, {1, 0}}}}}.decoder<float>(
                {}));
      }).substr(0, 50),
      "BlockSparseAttention: columns[1], of row 0, is 0; ");
  EXPECT_EQ(
      refusal([] {
        static_cast<void>(fovea::FixedAttention{{.stride = 4, .summary = 5}}.decoder<float>({}));
      }),
      "FixedAttention: summary is 5; expected 1 to 4 keys: a block has stride keys");
}

/// Refusals of plans change nothing.
TEST(DecoderErrors, PatternsThatRefuse) {
  const auto diagonal = [](Index i, Index j) { return i == j; };
  const fovea::SparseAttention op{{.patterns = {fovea::EnumeratedPattern(diagonal, {12, 12, 0})}}};
  const TokenTensors<float> tokens({1, 1, 1, 100, 100, 2, 2});
  auto decoder = op.decoder<float>(tokens.decoder_shape());
  tokens.step(decoder, 0, 10);
  for (const Index rows : {3, 90}) {
    EXPECT_EQ(refusal([&] { tokens.step(decoder, 10, rows); }),
              "EnumeratedPattern: the positions of the queries are 10 to " +
                  std::to_string(9 + rows) + "; expected 0 to 11, the enumerated positions");
    EXPECT_EQ(decoder.length(), 10);
  }
  tokens.step(decoder, 10, 2);
  EXPECT_EQ(tokens.out(0, 0, 11, 1), tokens.v(0, 0, 11, 1));
}

TEST(DecoderMemory, ARingHasConstantSize) {
  const LocalAttention op{{.left = 20}};
  const TokenTensors<float> tokens({1, 2, 1, 3000, 3000, 8, 8});
  auto decoder = op.decoder<float>(tokens.decoder_shape());
  while (decoder.length() < 500) tokens.step(decoder, decoder.length(), 1);
  const Index bytes = decoder.memory_bytes();
  const std::ptrdiff_t before = heap().reset();
  while (decoder.length() < 3000) tokens.step(decoder, decoder.length(), 1);
  EXPECT_EQ(decoder.memory_bytes(), bytes);
  EXPECT_EQ(heap().bytes, before);
  EXPECT_EQ(heap().allocations, 0);
  auto appended = op.decoder<float>(tokens.decoder_shape());
  for (Index n = 0; n < 3000; n += 5) appended.append(tokens.keys(n, 5), tokens.values(n, 5));
  EXPECT_EQ(appended.memory_bytes(), 2 * (20 + 1 + 64) * 16 * 4);  // left, itself, slack
}

/// Fixed attention keeps its own block and the summary: O(l + N c / l).
TEST(DecoderMemory, FixedKeepsTheSummary) {
  using fovea::FixedAttention;
  using fovea::HeadAssignment;
  const TokenTensors<float> tokens({1, 4, 2, 4096, 4096, 8, 8});
  constexpr Index token = 2 * 16 * 4;  // keys and values of both key heads
  const auto bytes_after = [&](const FixedAttention& op, Index count) {
    auto decoder = op.decoder<float>(tokens.decoder_shape());
    decoder.reserve(count);
    decoder.append(tokens.keys(0, count), tokens.values(0, count));
    return decoder.memory_bytes();
  };
  for (const auto heads : {HeadAssignment::separate, HeadAssignment::merged}) {
    const FixedAttention op{{.stride = 32, .summary = 4, .heads = heads}};
    const Index ring = 2 * (31 + 1 + 64) * token;
    EXPECT_EQ(bytes_after(op, 2048), ring + 2048 / 32 * 4 * token);
    EXPECT_EQ(bytes_after(op, 4096), ring + 4096 / 32 * 4 * token);
    // Each key head keeps the columns of its two query heads.
    FixedAttention apart = op;
    apart.options.sub_block_per_head = true;
    const Index kept = heads == HeadAssignment::merged ? 8 : 4;
    EXPECT_EQ(bytes_after(apart, 4096), ring + 4096 / 32 * kept * token);
  }
  const FixedAttention first{{.stride = 32, .heads = HeadAssignment::only_first}};
  EXPECT_EQ(bytes_after(first, 4096), 2 * (31 + 1 + 64) * token);
  const FixedAttention all{{.stride = 32, .summary = 32, .heads = HeadAssignment::only_second}};
  EXPECT_EQ(bytes_after(all, 4096), 4096 * token);
}

/// A step of many rows takes its memory and gives it back, but for the caches.
TEST(DecoderMemory, StepsOfOneRowNeedNoMoreMemory) {
  const fovea::StridedAttention op{{.stride = 16, .heads = fovea::HeadAssignment::merged}};
  const TokenTensors<float> tokens({1, 2, 1, 3000, 3000, 8, 8});
  DecoderShape sizes = tokens.decoder_shape();
  sizes.reserve = 3000;
  auto decoder = op.decoder<float>(sizes);
  tokens.step(decoder, 0, 2900);
  tokens.decode(decoder, {1});
  const Index bytes = decoder.memory_bytes();
  EXPECT_LE(bytes, 3000 * 16 * 4 + 100000);
  const std::ptrdiff_t before = heap().reset();
  decoder.rollback(2500);
  tokens.decode(decoder, {1});
  EXPECT_EQ(decoder.memory_bytes(), bytes);
  EXPECT_EQ(heap().bytes, before);
}

TEST(DecoderMemory, GrowsByDoubling) {
  const TokenTensors<float> tokens({1, 1, 1, 1000, 1000, 8, 8});
  const FullAttention op;
  auto decoder = op.decoder<float>(tokens.decoder_shape());
  for (Index n = 0; n < 1000; ++n) decoder.append(tokens.keys(n, 1), tokens.values(n, 1));
  EXPECT_EQ(decoder.memory_bytes(), 1024 * 16 * 4);
  decoder.clear();
  const std::ptrdiff_t before = heap().reset();
  decoder.append(tokens.keys(0, 1000), tokens.values(0, 1000));
  EXPECT_EQ(heap().allocations, 0);
  EXPECT_EQ(heap().bytes, before);
  EXPECT_EQ(decoder.fork().memory_bytes(), 1000 * 16 * 4);
  decoder.reserve(2000);
  EXPECT_EQ(decoder.memory_bytes(), 2000 * 16 * 4);
  auto reserved = op.decoder<float>({.width = 8, .value_width = 8, .reserve = 300});
  EXPECT_EQ(reserved.memory_bytes(), 300 * 16 * 4);
}

/// A failed allocation changes nothing.
TEST(DecoderMemory, BadAlloc) {
  const TokenTensors<float> tokens({1, 2, 1, 60, 60, 8, 8});
  const TokenTensors<float> expected({1, 2, 1, 60, 60, 8, 8});
  const FullAttention op{{.causal = true}};
  auto decoder = op.decoder<float>(tokens.decoder_shape());
  tokens.decode(decoder, {30, 1, 29});
  decoder.rollback(40);
  for (const Index many : {Index{1} << 45, std::numeric_limits<Index>::max()}) {
    const Index bytes = decoder.memory_bytes();
    EXPECT_THROW(decoder.reserve(many), std::bad_alloc);
    EXPECT_EQ(decoder.memory_bytes(), bytes);
    EXPECT_THROW(static_cast<void>(op.decoder<float>({.width = 8, .reserve = many})),
                 std::bad_alloc);
    // Keys of stride 0: there are that many of them, but no memory for them.
    const View<const float> k(tokens.k.view().data(), {1, 1, many / 32, 8}, {0, 0, 0, 1});
    EXPECT_THROW(decoder.append(k, k), std::bad_alloc);
    EXPECT_EQ(decoder.length(), 40);
  }
  tokens.decode(decoder, {5});
  expected.forward(op, 0, 60);
  EXPECT_TRUE(same_results(tokens, expected));
}

}  // namespace fovea_test::attention_decoder_errors
