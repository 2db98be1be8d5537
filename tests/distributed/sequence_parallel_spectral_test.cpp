// SPDX-License-Identifier: MIT
// fovea_test(RANKS NEEDS fftw)
/// \file
/// Layers that need FFTW over ranks: the token mixing of FNet, and attention to the pooled hidden
/// state cross. The bits are those of one process.
#include <gtest/gtest.h>

#include "distributed/layer_call.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed/fourier_mixer.hpp"
#include "fovea/distributed/fsat_backward.hpp"
#include "fovea/distributed/fsat_forward.hpp"
#include "fovea/distributed/hidden_state_cross.hpp"
#include "fovea/distributed/sequence_parallel.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_forward.hpp"
#include "fovea/layers/encoder_block.hpp"
#include "fovea/layers/fat_layer.hpp"
#include "fovea/layers/fourier_mixer_layer.hpp"
#include "fovea/layers/fsat_layer.hpp"
#include "support/ranks.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_sequence_parallel_spectral {

using fovea::HiddenMapKind;
using fovea::Initialiser;
using fovea::kReductionBlock;

constexpr HiddenMapKind kMaps[] = {HiddenMapKind::fully_connected, HiddenMapKind::convolution,
                                   HiddenMapKind::two_fully_connected};

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

TYPED_TEST(DistributedSpectralLayer, FsatEqualsOneProcess) {
  using T = TypeParam;
  const std::vector<Index> lengths = {3 * kReductionBlock + 9, 0};
  Tokens<T> tokens;
  tokens.key_lengths = lengths;
  for (const HiddenMapKind map : kMaps) {
    fovea::FsatLayerOptions options;
    options.width = 12;
    options.heads = 2;
    options.bias = true;
    options.map = map;
    options.dominant = 3;
    options.attention = {
        .max_length = 6 * kReductionBlock, .edges = fovea::EdgeSource::both, .seed = 7};
    Initialiser initialiser(3);
    const fovea::FsatLayer<T> layer(options, initialiser);
    check_layer<T>(layer, 12, map == HiddenMapKind::convolution ? tokens : Tokens<T>{},
                   {2, 1, 5 * kReductionBlock + 17, 12});
  }
}

TYPED_TEST(DistributedSpectralLayer, FatEqualsOneProcess) {
  using T = TypeParam;
  const std::vector<Index> lengths = {3 * kReductionBlock + 9, 0};
  Tokens<T> tokens;
  tokens.key_lengths = lengths;
  fovea::ThreadPool pool(2);
  for (const HiddenMapKind map : kMaps) {
    fovea::FatLayerOptions options;
    options.width = 12;
    options.heads = 2;
    options.head_width = 4;
    options.map = map;
    Initialiser initialiser(3);
    const fovea::FatLayer<T> layer(options, initialiser);
    check_layer<T>(layer, 12, map == HiddenMapKind::convolution ? Tokens<T>{} : tokens,
                   {2, 1, 5 * kReductionBlock + 17, 12}, pool);
  }
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
