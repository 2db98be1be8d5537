// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// What layers of the Synthesizer over ranks refuse. (See also drawn_other_layers_test.cpp.)
#include <gtest/gtest.h>

#include "distributed/layer_call.hpp"
#include "fovea/distributed/sequence_parallel.hpp"
#include "fovea/distributed/synthesizer_backward.hpp"
#include "fovea/distributed/synthesizer_forward.hpp"
#include "fovea/layers/synthesizer_layer.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"

namespace fovea_test::distributed_sequence_parallel_synthesizer {

using fovea::Initialiser;
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
