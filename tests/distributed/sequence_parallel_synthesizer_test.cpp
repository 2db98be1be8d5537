// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Layers of the Synthesizer over ranks: weights by position are used by the rows of every rank,
/// and their gradients have the bits of one process.
#include <gtest/gtest.h>

#include "distributed/layer_call.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed/sequence_parallel.hpp"
#include "fovea/distributed/synthesizer_backward.hpp"
#include "fovea/distributed/synthesizer_forward.hpp"
#include "fovea/layers/encoder_block.hpp"
#include "fovea/layers/synthesizer_layer.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_sequence_parallel_synthesizer {

using fovea::Initialiser;
using fovea::kReductionBlock;
using fovea::SynthesizerLayerOptions;
using fovea::distributed::sequence_parallel;

template <class Op>
class DistributedSynthesizerLayer : public testing::Test {
 public:
  template <class T>
  static auto made(const SynthesizerLayerOptions& options) {
    Initialiser initialiser(3);
    return fovea::SynthesizerLayer<Op, T>(options, initialiser);
  }
};
using Ops = testing::Types<fovea::RandomSynthesizerAttention, fovea::FactorisedSynthesizerAttention,
                           fovea::DenseSynthesizerAttention>;
TYPED_TEST_SUITE(DistributedSynthesizerLayer, Ops);

/// The layer takes longer sequences, too, whose positions have no gradient here.
TYPED_TEST(DistributedSynthesizerLayer, EqualsOneProcess) {
  const std::vector<Index> lengths = {3 * kReductionBlock + 9, 0};
  Tokens<float> tokens;
  tokens.key_lengths = lengths;
  const Shape shape = {2, 1, 5 * kReductionBlock + 17, kLayerWidth};
  for (const bool causal : {false, true}) {
    const auto layer = TestFixture::template made<float>({.width = kLayerWidth,
                                                          .heads = 3,
                                                          .length = 6 * kReductionBlock,
                                                          .factor = 5,
                                                          .attention = {.causal = causal}});
    check_layer<float>(layer, kLayerWidth, causal ? tokens : Tokens<float>{}, shape);
  }
}

TYPED_TEST(DistributedSynthesizerLayer, EqualsOneProcessInDouble) {
  const auto layer = TestFixture::template made<OtherScalar>({.width = 6,
                                                              .heads = 2,
                                                              .head_width = 4,
                                                              .length = 9 * kReductionBlock,
                                                              .hidden = 7,
                                                              .bias = false});
  check_layer<OtherScalar>(layer, 6, {}, {1, 1, 9 * kReductionBlock, 6});
}

TYPED_TEST(DistributedSynthesizerLayer, MayBeInABlockOnThreads) {
  using Layer = fovea::SynthesizerLayer<TypeParam, float>;
  fovea::ThreadPool pool(3);
  Initialiser initialiser(5);
  const Layer layer =
      TestFixture::template made<float>({.width = 16, .heads = 2, .length = 5 * kReductionBlock});
  check_layer<float>(fovea::EncoderBlock<Layer, float>(layer, 16, 20, initialiser), 16, {},
                     {2, 1, 4 * kReductionBlock + 2, 16}, pool);
}

/// A forward pass needs no chains.
TYPED_TEST(DistributedSynthesizerLayer, ForwardSupportsAnyLayout) {
  const auto layer = TestFixture::template made<float>({.width = 6, .heads = 2, .length = 250});
  check_forward<float>(layer, {1, 1, 211, 6}, layouts_of(211, all_ranks().size()));
}

/// The sequence is as long as all ranks' rows.
TYPED_TEST(DistributedSynthesizerLayer, RefusesMoreTokensThanItHasPositions) {
  auto layer = TestFixture::template made<float>({.width = 6, .heads = 2, .length = 499});
  const Sharding rows = chain_rows(500);
  const Tensor<float> x({1, 1, rows.own_count(), 6});
  const Tensor<float> y(x.shape());
  y.fill(constant(77));
  const std::string expected =
      "rank 0: SynthesizerLayer: x has 500 rows; expected at most 499, the length of the layer";
  EXPECT_EQ(refused_over(rows, [&](auto& over) { layer.forward(x.view(), y.view(), over); }),
            expected);
  typename decltype(layer)::Saved saved;
  const auto backward = [&](auto& over) {
    layer.backward(x.view(), saved, x.view(), y.view(), over);
  };
  EXPECT_EQ(refused_over(rows, backward), expected);
  for (const float at : y.values()) EXPECT_EQ(at, 77);
}

/// Lengths are those of the whole sequence.
TYPED_TEST(DistributedSynthesizerLayer, RefusesLengthsBeyondTheSequence) {
  const auto layer = TestFixture::template made<float>({.width = 6, .heads = 2, .length = 600});
  EXPECT_EQ(said_to_a_length_beyond<float>(layer, 6),
            "rank 0: SynthesizerLayer: key_lengths[0] is 501; expected 0 to 500, the rows of x");
}

}  // namespace fovea_test::distributed_sequence_parallel_synthesizer
