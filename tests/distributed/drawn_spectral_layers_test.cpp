// SPDX-License-Identifier: MIT
// fovea_test(RANKS NEEDS fftw)
/// \file
/// Layers that need FFTW over ranks, with drawn options, sizes, data and places: the bits are those
/// of one process, also of the gradients of all parameters.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "distributed/drawn_layer.hpp"
#include "fovea/distributed/fourier_mixer.hpp"
#include "fovea/distributed/fsat_backward.hpp"
#include "fovea/distributed/fsat_forward.hpp"
#include "fovea/distributed/hidden_state_cross.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_forward.hpp"
#include "fovea/layers/encoder_block.hpp"
#include "fovea/layers/fat_layer.hpp"
#include "fovea/layers/fourier_mixer_layer.hpp"
#include "fovea/layers/fsat_layer.hpp"

namespace fovea_test::distributed_drawn_spectral_layers {

using fovea::Initialiser;

template <class T>
void try_mixer(Bytes& bytes) {
  const Index width = bytes(1, 70);
  ChannelTensors<T> call(drawn_tokens(bytes, 1, width, width), Held::rows);
  const fovea::FourierMixerLayer<T> mixer(width);
  if (bytes.once_in(2)) {
    Initialiser initialiser(3);
    const fovea::EncoderBlock<fovea::FourierMixerLayer<T>, T> block(
        mixer, width, bytes(1, 70), initialiser, {.norm_first = bytes.once_in(2)});
    return try_layer<T>("EncoderBlock of mixers", block, call, TokenExtras<T>{}, true, bytes);
  }
  try_layer<T>("FourierMixerLayer", mixer, call, TokenExtras<T>{}, true, bytes);
}

/// Draws what FsatLayer and FatLayer have in common.
template <class Options>
Options drawn_hidden_cross(Bytes& bytes) {
  const fovea::MultiHeadOptions heads = drawn_heads_of_layer(bytes);
  Options options;
  options.width = heads.width;
  options.heads = heads.heads;
  options.head_width = heads.head_width;
  options.bias = heads.bias;
  options.map = std::array{fovea::HiddenMapKind::fully_connected, fovea::HiddenMapKind::convolution,
                           fovea::HiddenMapKind::two_fully_connected}[as_size(bytes(0, 2))];
  options.map_hidden = bytes(0, 30);
  return options;
}

template <class Layer, class T, class Options>
void try_hidden_cross(const char* name, const Options& options, const DrawnSequence& sequence,
                      Bytes& bytes) {
  Initialiser initialiser(sequence.seed);
  ChannelTensors<T> call(sequence, Held::rows);
  TokenExtras<T> extras;
  extras.has_lengths = true;
  try_layer<T>(std::string(name) + ", map " + std::to_string(static_cast<int>(options.map)),
               Layer(options, initialiser), call, extras, true, bytes);
}

template <class T>
void try_fsat(Bytes& bytes) {
  auto options = drawn_hidden_cross<fovea::FsatLayerOptions>(bytes);
  const DrawnSequence sequence = drawn_tokens(bytes, 1, options.width, options.width);
  options.dominant = bytes(1, 5);
  options.attention.max_length = std::max(Index{1}, sequence.shape.keys + bytes(0, 60));
  options.attention.edges =
      bytes.once_in(2) ? fovea::EdgeSource::both : fovea::EdgeSource::predicted;
  options.attention.seed = sequence.seed;
  try_hidden_cross<fovea::FsatLayer<T>, T>("FsatLayer", options, sequence, bytes);
}

template <class T>
void try_fat(Bytes& bytes) {
  const auto options = drawn_hidden_cross<fovea::FatLayerOptions>(bytes);
  const DrawnSequence sequence = drawn_tokens(bytes, 1, options.width, options.width);
  try_hidden_cross<fovea::FatLayer<T>, T>("FatLayer", options, sequence, bytes);
}

TEST(DistributedDrawnSpectralLayers, EqualOneProcess) {
  each_drawn_over_ranks(60, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    const Index kind = bytes(0, 2);
    with_drawn_scalar(bytes, [&]<class T>(T) {
      if (kind == 0) return try_mixer<T>(bytes);
      return kind == 1 ? try_fsat<T>(bytes) : try_fat<T>(bytes);
    });
  });
}

}  // namespace fovea_test::distributed_drawn_spectral_layers
