// SPDX-License-Identifier: MIT
// fovea_test(RANKS NEEDS fftw)
/// \file
/// Layers that need FFTW over ranks: blocks of the token mixing of FNet have the bits of one
/// process, and lengths are those of the whole sequence. (See also drawn_spectral_layers_test.cpp.)
#include <gtest/gtest.h>

#include "distributed/layer_call.hpp"
#include "fovea/distributed/fourier_mixer.hpp"
#include "fovea/distributed/hidden_state_cross.hpp"
#include "fovea/distributed/sequence_parallel.hpp"
#include "fovea/distributed/softmax_forward.hpp"
#include "fovea/layers/encoder_block.hpp"
#include "fovea/layers/fat_layer.hpp"
#include "fovea/layers/fourier_mixer_layer.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_sequence_parallel_spectral {

using fovea::Initialiser;
using fovea::kReductionBlock;

template <class T>
class DistributedSpectralLayer : public testing::Test {};
TYPED_TEST_SUITE(DistributedSpectralLayer, Scalars);

TYPED_TEST(DistributedSpectralLayer, BlocksOfMixersEqualOneProcess) {
  using T = TypeParam;
  using Mixer = fovea::FourierMixerLayer<T>;
  Initialiser initialiser(3);
  const Shape shape = {2, 1, 5 * kReductionBlock + 17, 12};
  using Block = fovea::EncoderBlock<Mixer, T>;
  check_layer<T>(Block(Mixer(12), 12, 20, initialiser, {.norm_first = false}), 12, {}, shape);
}

/// Lengths are those of the whole sequence.
TEST(DistributedSpectralLayerBadInput, IncludesALengthBeyondTheSequence) {
  fovea::FatLayerOptions options;
  options.width = 6;
  Initialiser initialiser(3);
  const fovea::FatLayer<float> layer(options, initialiser);
  EXPECT_EQ(said_to_a_length_beyond<float>(layer, 6),
            "rank 0: FatLayer: key_lengths[0] is 501; expected 0 to 500, the rows of x");
}

}  // namespace fovea_test::distributed_sequence_parallel_spectral
