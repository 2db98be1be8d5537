// SPDX-License-Identifier: MIT
/// \file
/// Layers over ranks beside MultiHead of most operators, with drawn options, sizes, data and
/// places: the bits are those of one process, also of the gradients of all parameters.
#include <gtest/gtest.h>

#include <string>

#include "distributed/drawn_layer.hpp"
#include "fovea/distributed/synthesizer_backward.hpp"
#include "fovea/distributed/synthesizer_forward.hpp"
#include "fovea/layers/synthesizer_layer.hpp"

namespace fovea_test::distributed_drawn_other_layers {

using fovea::Initialiser;

/// The layer may take longer sequences than it is given.
template <class Op, class T>
void try_synthesizer(Bytes& bytes) {
  const fovea::MultiHeadOptions heads = drawn_heads_of_layer(bytes);
  const DrawnSequence sequence = drawn_tokens(bytes, 1, heads.width, heads.width);
  Initialiser initialiser(sequence.seed);
  const Index more = bytes.once_in(2) ? bytes(0, 90) : Index{0};
  const fovea::SynthesizerLayer<Op, T> layer(
      {.width = heads.width,
       .heads = heads.heads,
       .head_width = heads.head_width,
       .length = std::max(Index{1}, sequence.shape.keys + more),
       .factor = bytes(1, 12),
       .hidden = bytes(1, 20),
       .bias = heads.bias,
       .attention = {.causal = bytes.once_in(2)}},
      initialiser);
  ChannelTensors<T> call(sequence, Held::rows);
  TokenExtras<T> extras;
  extras.has_lengths = true;
  try_layer<T>(std::string("SynthesizerLayer of ") + Op::name(), layer, call, extras, true, bytes);
}

template <class T>
void try_any_synthesizer(Bytes& bytes) {
  switch (bytes(0, 2)) {
    case 0:
      return try_synthesizer<fovea::RandomSynthesizerAttention, T>(bytes);
    case 1:
      return try_synthesizer<fovea::FactorisedSynthesizerAttention, T>(bytes);
    default:
      return try_synthesizer<fovea::DenseSynthesizerAttention, T>(bytes);
  }
}

TEST(DistributedDrawnOtherLayers, HaveTheBitsOfOneProcess) {
  each_drawn_over_ranks(60, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    with_drawn_scalar(bytes, [&]<class T>(T) { try_any_synthesizer<T>(bytes); });
  });
}

}  // namespace fovea_test::distributed_drawn_other_layers
