// SPDX-License-Identifier: MIT
// fovea_test(RANKS NEEDS fftw)
/// \file
/// Lengths of layers that need FFTW over ranks are those of the whole sequence. (See also
/// drawn_spectral_layers_test.cpp.)
#include <gtest/gtest.h>

#include "distributed/layer_call.hpp"
#include "fovea/distributed/hidden_state_cross.hpp"
#include "fovea/distributed/sequence_parallel.hpp"
#include "fovea/distributed/softmax_forward.hpp"
#include "fovea/layers/fat_layer.hpp"

namespace fovea_test::distributed_sequence_parallel_spectral {

TEST(DistributedSpectralLayerBadInput, IncludesALengthBeyondTheSequence) {
  fovea::FatLayerOptions options;
  options.width = 6;
  fovea::Initialiser initialiser(3);
  const fovea::FatLayer<float> layer(options, initialiser);
  EXPECT_EQ(said_to_a_length_beyond<float>(layer, 6),
            "rank 0: FatLayer: key_lengths[0] is 501; expected 0 to 500, the rows of x");
}

}  // namespace fovea_test::distributed_sequence_parallel_spectral
