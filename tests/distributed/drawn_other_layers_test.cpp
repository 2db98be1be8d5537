// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Layers over ranks other than MultiHead, with random options, sizes, data and layouts: results
/// and gradients of all parameters have the bits of one process.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "distributed/drawn_layer.hpp"
#include "fovea/distributed/luna.hpp"
#include "fovea/distributed/sinkhorn.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_forward.hpp"
#include "fovea/distributed/synthesizer_backward.hpp"
#include "fovea/distributed/synthesizer_forward.hpp"
#include "fovea/layers/cross_multi_head.hpp"
#include "fovea/layers/depthwise_conv.hpp"
#include "fovea/layers/learned_sorting.hpp"
#include "fovea/layers/luna_layer.hpp"
#include "fovea/layers/multi_head.hpp"
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

/// The tensors of a Luna layer's call. All ranks have those of packed rows.
template <class T>
struct LunaTensors : ChannelTensors<T> {
  LunaTensors(const DrawnSequence& s, Index packed_rows)
      : ChannelTensors<T>(s, Held::rows),
        packed(add("packed", Role::read, packed_rows, 3)),
        d_y_packed(add("d_y_packed", Role::read, packed_rows, 4)),
        y_packed(add("y_packed", Role::made, packed_rows, 0)),
        d_packed(add("d_packed", Role::gradient, packed_rows, 0)) {}

  ShardedTensor<T>&packed, &d_y_packed, &y_packed, &d_packed;

 private:
  ShardedTensor<T>& add(const char* name, Role role, Index rows, std::uint64_t seed) {
    return this->channels(name, role, Held::whole, rows, this->sequence.shape.width, seed);
  }
};

template <class T>
void try_luna(Bytes& bytes) {
  const fovea::MultiHeadOptions heads = drawn_heads_of_layer(bytes);
  const Index width = heads.heads * heads.head_width;
  LunaTensors<T> call(drawn_tokens(bytes, 1, width, width), bytes(1, 40));
  Initialiser initialiser(call.sequence.seed);
  const fovea::LunaLayer<T> layer(
      {.width = width, .heads = heads.heads, .key_heads = heads.key_heads, .bias = heads.bias},
      initialiser);
  const bool uses_packed = !bytes.once_in(3);
  try_passes<T>(
      "LunaLayer, P " + std::to_string(call.packed.whole.shape()[2]), layer, call, true, bytes,
      [&](auto& run, Where where, auto&& executor) {
        run.layer.forward({View<const T>(call.x.in(where)), View<const T>(call.packed.in(where)),
                           call.sequence.lengths},
                          {call.y.in(where), call.y_packed.in(where)}, run.saved, executor);
      },
      [&](auto& run, Where where, auto&& executor) {
        fovea::LunaOutputs<const T> d_y;
        d_y.x = call.d_y.in(where);
        if (uses_packed) d_y.packed = call.d_y_packed.in(where);
        run.layer.backward({View<const T>(call.x.in(where)), View<const T>(call.packed.in(where)),
                            call.sequence.lengths},
                           run.saved, d_y, {call.d_x.in(where), call.d_packed.in(where)}, executor);
      });
}

/// The layer may take longer sequences than it is given.
template <class T>
void try_sinkhorn(Bytes& bytes) {
  fovea::MultiHeadOptions options = drawn_heads_of_layer(bytes);
  const Index block = bytes.once_in(2) ? bytes(1, 8) : bytes(1, 90);
  const DrawnSequence sequence = drawn_tokens(bytes, block, options.width, options.width);
  const Index more = bytes.once_in(2) ? bytes(0, 20) : Index{0};
  options.sorted_blocks = std::max(Index{1}, sequence.shape.keys / block + more);
  Initialiser initialiser(sequence.seed);
  const fovea::SinkhornAttention op({.block = block, .iterations = bytes(0, 4)});
  ChannelTensors<T> call(sequence, Held::rows);
  TokenExtras<T> extras;
  extras.has_lengths = true;
  try_layer<T>("MultiHead of SinkhornAttention, block " + std::to_string(block),
               fovea::MultiHead<fovea::SinkhornAttention, T>(op, options, initialiser), call,
               extras, true, bytes);
}

template <class T>
void try_convolution(Bytes& bytes) {
  const Index width = bytes.once_in(4) ? bytes(100, 300) : bytes(1, 70);
  const DrawnSequence sequence = drawn_tokens(bytes, 1, width, width);
  const Index taps = 1 + 2 * (bytes.once_in(3) ? bytes(0, 200) : bytes(0, 5));
  Initialiser initialiser(sequence.seed);
  ChannelTensors<T> call(sequence, Held::rows);
  TokenExtras<T> extras;
  extras.has_lengths = true;
  try_layer<T>("DepthwiseConv, taps " + std::to_string(taps),
               fovea::DepthwiseConv<T>(width, initialiser, {.taps = taps}), call, extras, true,
               bytes);
}

/// The tensors of attention to another sequence, which is sharded as its tokens are.
template <class T>
struct MemoryTensors : ChannelTensors<T> {
  MemoryTensors(const DrawnSequence& s, Index memory_width)
      : ChannelTensors<T>(s, Held::rows),
        memory(this->channels("memory", Role::read, Held::rows, s.shape.keys, memory_width, 3)),
        d_memory(
            this->channels("d_memory", Role::gradient, Held::rows, s.shape.keys, memory_width, 0)) {
    d_memory.is_alike = true;
  }

  ShardedTensor<T>&memory, &d_memory;
};

template <class T>
void try_memory(Bytes& bytes) {
  const fovea::MultiHeadOptions heads = drawn_heads_of_layer(bytes);
  const Index memory_width = bytes(1, 50);
  MemoryTensors<T> call(drawn_tokens(bytes, 1, heads.width, heads.width), memory_width);
  Initialiser initialiser(call.sequence.seed);
  const fovea::CrossMultiHead<fovea::FullAttention, T> layer(drawn_full(bytes),
                                                             {.width = heads.width,
                                                              .memory_width = memory_width,
                                                              .heads = heads.heads,
                                                              .key_heads = heads.key_heads,
                                                              .head_width = heads.head_width,
                                                              .bias = heads.bias,
                                                              .sinks = bytes.once_in(3)},
                                                             initialiser);
  std::optional<fovea::TrainingStep> training;
  if (bytes.once_in(2)) training = {.seed = 5, .step = 2};
  const auto tokens = [&](Where where) {
    return fovea::CrossTokens<T>{.x = call.x.in(where),
                                 .memory = call.memory.in(where),
                                 .key_lengths = call.sequence.lengths,
                                 .training = training};
  };
  try_passes<T>(
      "CrossMultiHead", layer, call, true, bytes,
      [&](auto& run, Where where, auto&& executor) {
        run.layer.forward(tokens(where), call.y.in(where), run.saved, executor);
      },
      [&](auto& run, Where where, auto&& executor) {
        run.layer.backward(tokens(where), run.saved, View<const T>(call.d_y.in(where)),
                           call.d_x.in(where), call.d_memory.in(where), executor);
      });
}

TEST(DistributedDrawnOtherLayers, EqualOneProcess) {
  each_drawn_over_ranks(120, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    with_drawn_scalar(bytes, [&]<class T>(T) {
      switch (bytes(0, 4)) {
        case 0:
          return try_luna<T>(bytes);
        case 3:
          return try_memory<T>(bytes);
        case 2:
          return try_convolution<T>(bytes);
        case 1:
          return try_sinkhorn<T>(bytes);
        default:
          return try_any_synthesizer<T>(bytes);
      }
    });
  });
}

}  // namespace fovea_test::distributed_drawn_other_layers
