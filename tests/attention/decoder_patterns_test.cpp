// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// Decoders of the sparse operators: the bits of `forward` in any division of the tokens, over
/// segments, with heads of different patterns, after rolling back and in forks.
#include <gtest/gtest.h>

#include "attention/decoding.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_decoder_patterns {

using fovea::BigBirdAttention;
using fovea::BlockSparseAttention;
using fovea::FixedAttention;
using fovea::HeadAssignment;
using fovea::LongformerAttention;
using fovea::SparseAttention;
using fovea::StridedAttention;

static_assert(fovea::IncrementalAttention<StridedAttention, float>);
static_assert(fovea::IncrementalAttention<SparseAttention, double>);

/// Token by token, in chunks of sizes around kMostRows and the ring's capacity, and all at once.
const std::vector<std::vector<Index>> kDivisions = {
    {1}, {3, 1, 70, 1, 1, 8, 150, 2}, {1000}, {64, 65, 16, 17}, {5, 180, 1}};

constexpr HeadAssignment kAssignments[] = {HeadAssignment::separate, HeadAssignment::merged,
                                           HeadAssignment::only_first, HeadAssignment::only_second};

template <class T>
class DecoderPatternsOf : public testing::Test {};
using Scalars = ScalarsAnd<Eigen::bfloat16>;
TYPED_TEST_SUITE(DecoderPatternsOf, Scalars);

TYPED_TEST(DecoderPatternsOf, Strided) {
  for (const auto& division : kDivisions) {
    for (const HeadAssignment heads : kAssignments) {
      for (const bool causal : {true, false}) {
        for (const Index stride : {1, 12, 70}) {
          const StridedAttention op{{.stride = stride, .heads = heads, .causal = causal}};
          expect_forward<TypeParam>(op, {1, 4, 2, 200, 200, 16, 9}, division);
        }
      }
    }
  }
}

TYPED_TEST(DecoderPatternsOf, Fixed) {
  for (const auto& division : kDivisions) {
    for (const HeadAssignment heads : kAssignments) {
      for (const bool causal : {true, false}) {
        for (const auto& [stride, summary] : {std::pair<Index, Index>{13, 3}, {64, 8}}) {
          for (const bool apart : {true, false}) {
            const FixedAttention op{{.stride = stride,
                                     .summary = summary,
                                     .heads = heads,
                                     .sub_block_per_head = apart,
                                     .causal = causal}};
            expect_forward<TypeParam>(op, {1, 4, 2, 230, 230, 7, 16}, division);
          }
        }
      }
    }
  }
}

/// Keys of width 0 give means, values of width 0 nothing but lse; both are tokens all the same.
TYPED_TEST(DecoderPatternsOf, ZeroWidths) {
  const auto check = [](const auto& op) {
    for (const auto& [width, value_width] : {std::pair{0, 5}, std::pair{6, 0}, std::pair{0, 0}}) {
      expect_forward<TypeParam>(op, {2, 4, 2, 150, 150, width, value_width}, {1, 40, 3});
    }
  };
  check(fovea::FullAttention{{.causal = true}});
  check(fovea::LocalAttention{{.left = 20}});
  check(StridedAttention{{.stride = 7, .heads = HeadAssignment::merged}});
  check(FixedAttention{{.stride = 8, .summary = 2}});
}

/// Tensors without elements may have no memory.
TYPED_TEST(DecoderPatternsOf, ZeroWidthsWithoutMemory) {
  using T = TypeParam;
  const auto tensor = [](Index heads, Index n) { return View<T>(nullptr, {2, heads, n, 0}); };
  auto decoder = fovea::FullAttention{}.decoder<T>({.batch = 2, .query_heads = 4, .key_heads = 2});
  decoder.append(tensor(2, 3), tensor(2, 3));
  decoder.step({tensor(4, 2), tensor(2, 5), tensor(2, 5)}, tensor(4, 2));
  EXPECT_EQ(decoder.length(), 8);
}

TYPED_TEST(DecoderPatternsOf, Compositions) {
  const fovea::BlockRows rows = {{0, 1, 3, 3, 6, 8}, {0, 0, 1, 0, 2, 3, 1, 4}};
  for (const auto& division : kDivisions) {
    for (const bool causal : {true, false}) {
      expect_forward<TypeParam>(
          LongformerAttention{{.left = 40, .right = 9, .first_global = 5, .causal = causal}},
          {1, 4, 2, 300, 300, 16, 16}, division);
      expect_forward<TypeParam>(BigBirdAttention{{.block = 16, .causal = causal}},
                                {1, 4, 2, 300, 300, 16, 16}, division);
      // Its blocks of keys are all there with the first tokens.
      const BlockSparseAttention blocks{{.block = 60, .layouts = {rows}, .causal = causal}};
      std::vector<Index> later = division;
      later.insert(later.begin(), 260);
      expect_forward<TypeParam>(blocks, {1, 2, 2, 300, 300, 8, 8}, later);
    }
  }
}

/// Heads of one key head that see different keys, band, window, passes and list side by side.
TYPED_TEST(DecoderPatternsOf, HeadsOfDifferentPatterns) {
  const SparseAttention op{
      {.patterns = {fovea::Window{4, 1}, fovea::strided_merged(6), fovea::DilatedWindow{5, 0, 3},
                    fovea::fixed_merged({16, 2, 0, true}), fovea::Causal{}}}};
  for (const auto& division : kDivisions) {
    for (const Index key_heads : {1, 2, 6}) {
      expect_forward<TypeParam>(op, {1, 12, key_heads, 200, 200, 8, 8}, division);
    }
  }
  // Bounded and summaries of one stride: a ring.
  const SparseAttention ring{{.patterns = {fovea::Window{4, 1}, fovea::Window{60, 0},
                                           fovea::fixed_merged({16, 2, 0, true}),
                                           fovea::FixedSummary{{16, 3, 1, false}}}}};
  for (const auto& division : kDivisions) {
    expect_forward<TypeParam>(ring, {1, 8, 4, 300, 300, 8, 8}, division);
  }
}

TEST(DecoderPatterns, OptionsForAnyStepSizes) {
  const fovea::Dropout dropout{.probability = 0.3, .seed = 7};
  for (const auto& division : kDivisions) {
    for (const HeadAssignment heads : kAssignments) {
      const AttentionShape shape{2, 4, 2, 210, 210, 16, 20};
      const Beside everything{true, true, true, true};
      expect_forward<float>(StridedAttention{{.stride = 7, .heads = heads}}, shape, division,
                            everything);
      expect_forward<double>(
          FixedAttention{
              {.stride = 10, .summary = 3, .heads = heads, .soft_cap = 2.0, .dropout = dropout}},
          shape, division, everything);
    }
  }
}

/// Strided keys, and each summary column, fill several segments.
TEST(DecoderPatterns, Segments) {
  for (const HeadAssignment heads : {HeadAssignment::separate, HeadAssignment::merged}) {
    const AttentionShape shape{1, 2, 1, 8300, 8300, 3, 3};
    const std::vector<Index> division = {4090, 1, 1, 5, 90, 4000, 1, 10, 1, 80};
    expect_forward<float>(StridedAttention{{.stride = 2, .heads = heads}}, shape, division);
    expect_forward<float>(FixedAttention{{.stride = 4, .summary = 2, .heads = heads}}, shape,
                          division);
  }
}

TEST(DecoderPatterns, SameBitsWithAnyExecutor) {
  fovea::ThreadPool four(4);
  Backwards backwards;
  Shuffled shuffled;
  for (const auto heads : {HeadAssignment::separate, HeadAssignment::merged}) {
    const FixedAttention op{{.stride = 8, .summary = 3, .heads = heads}};
    const AttentionShape shape{1, 4, 2, 6200, 6200, 8, 8};
    const TokenTensors<float> expected(shape);
    auto serial = op.decoder<float>(expected.decoder_shape());
    expected.decode(serial, {6000, 1, 100, 1, 9, 1});
    for (AnyExecutor executor :
         {AnyExecutor::of(four), AnyExecutor::of(backwards), AnyExecutor::of(shuffled)}) {
      const TokenTensors<float> decoded(shape);
      auto decoder = op.decoder<float>(decoded.decoder_shape());
      decoded.decode(decoder, {6000, 1, 100, 1, 9, 1}, executor);
      EXPECT_TRUE(same_results(decoded, expected));
    }
  }
}

TYPED_TEST(DecoderPatternsOf, RollBackAndFork) {
  for (const Index tokens : {1, 5, 64}) {
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
TEST(DecoderPatterns, RollBackFixedToTheEndOfTheRing) {
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

TEST(DecoderPatterns, AppendThenStep) {
  for (const HeadAssignment heads : kAssignments) {
    expect_append_then_step<double>(FixedAttention{{.stride = 24, .summary = 5, .heads = heads}});
  }
}

}  // namespace fovea_test::attention_decoder_patterns
