// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Layers over ranks, with drawn options, sizes, data and places: the bits are those of one
/// process, also of the gradients of all parameters.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attention/dominant_fill.hpp"
#include "distributed/drawn_layer.hpp"
#include "distributed/operator_call.hpp"
#include "fovea/distributed.hpp"
#include "fovea/layers.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_drawn_layers {

using fovea::Initialiser;
using fovea::MultiHead;
using fovea::MultiHeadOptions;

template <class T>
void try_map(Bytes& bytes) {
  Initialiser initialiser(static_cast<std::uint64_t>(bytes(1, 99)));
  const Index width = bytes.once_in(4) ? bytes(100, 300) : bytes(1, 70);
  const Index inner = bytes(1, 130);
  const Index kind = bytes(0, 5);
  const DrawnSequence sequence = drawn_tokens(bytes, 1, width, kind == 0 ? inner : width);
  ChannelTensors<T> call(sequence, kind == 5 ? Held::whole : Held::rows);
  TokenExtras<T> extras;
  const auto run = [&](const std::string& what, const auto& layer) {
    try_layer<T>(what, layer, call, extras, true, bytes);
  };
  switch (kind) {
    case 0:
      return run("Linear", fovea::Linear<T>(width, inner, initialiser, {.bias = bytes.once_in(2)}));
    case 1:
      return run("LayerNorm", fovea::LayerNorm<T>(width));
    case 2:
      return run("RmsNorm", fovea::RmsNorm<T>(width));
    case 3:
      extras.training = {.seed = sequence.seed, .step = 3};
      return run("Dropout", fovea::DropoutLayer<T>(0.3));
    case 4:
      if (bytes.once_in(2)) {
        return run("GatedFeedForward", fovea::GatedFeedForward<T>(width, inner, initialiser));
      }
      return run("FeedForward", fovea::FeedForward<T>(width, inner, initialiser));
    default:
      extras.has_lengths = true;
      call.d_x.is_due = true;
      return run("MeanPool", fovea::MeanPool<T>());
  }
}

template <class T>
struct HeadsTrial {
  Bytes& bytes;
  MultiHeadOptions options = drawn_heads_of_layer(bytes);
  TokenExtras<T> extras{};

  /// \param multiple of which the tokens are that many
  /// \param add adds tensors of the tokens to a call
  template <class Op, class Add>
  void run(const Op& op, Index multiple, bool can_go_back, const Add& add) {
    const DrawnSequence sequence = drawn_tokens(bytes, multiple, options.width, options.width);
    if (options.length > 0) options.length = std::max(options.length, sequence.shape.keys);
    ChannelTensors<T> call(sequence, Held::rows);
    add(call);
    Initialiser initialiser(sequence.seed);
    Op of_sequence = op;
    if constexpr (requires { of_sequence.options.first_global; }) {
      Index& global = of_sequence.options.first_global;
      global = std::min(global, sequence.shape.keys);
    }
    try_layer<T>(std::string("MultiHead of ") + Op::name() + ", H " +
                     std::to_string(options.heads) + ", Hk " + std::to_string(options.key_heads) +
                     ", D " + std::to_string(options.head_width),
                 MultiHead<Op, T>(of_sequence, options, initialiser), call, extras, can_go_back,
                 bytes);
  }
  template <class Op>
  void run(const Op& op, Index multiple = 1, bool can_go_back = true) {
    run(op, multiple, can_go_back, [](ChannelTensors<T>&) {});
  }

  /// Softmax attention with all that it takes.
  template <class Op>
  void run_softmax(const Op& op) {
    options.alibi = bytes.once_in(3);
    options.sinks = bytes.once_in(3);
    if (bytes.once_in(3)) options.rotary = fovea::RotaryOptions{};
    if (bytes.once_in(2)) extras.training = {.seed = 5, .step = 2};
    const Extras drawn = drawn_extras(bytes);
    run(op, 1, true, [&](ChannelTensors<T>& call) {
      AttentionShape s = call.sequence.shape;
      s.query_heads = options.heads;
      const std::uint64_t seed = call.sequence.seed;
      if (!drawn.bias.empty()) {
        extras.bias = &call.ShardedTensors<T>::template add<T>(
            "bias", Role::read, Held::logits, logits_shape(s, drawn.bias), bias_fill(seed, drawn));
      }
      if (!drawn.mask.empty()) {
        extras.mask = &call.ShardedTensors<T>::template add<bool>(
            "mask", Role::read, Held::logits, logits_shape(s, drawn.mask), mask_fill(seed));
      }
      if (drawn.bias.find('q') == std::string::npos || bytes.once_in(2)) return;
      extras.d_bias = &call.ShardedTensors<T>::template add<T>("d_bias", Role::gradient, Held::rows,
                                                               logits_shape(s, drawn.bias));
      extras.d_bias->is_due = true;
    });
  }
};

template <class T>
void try_heads(Bytes& bytes) {
  HeadsTrial<T> trial{bytes};
  trial.extras.has_lengths = true;
  switch (bytes(0, 13)) {
    case 0:
    case 1:
      return trial.run_softmax(drawn_full(bytes));
    case 13: {
      const Index keys = bytes(1, 12);
      const fovea::IndexedAttention op{{.causal = bytes.once_in(2)}};
      return trial.run(op, 1, true, [&](ChannelTensors<T>& call) {
        AttentionShape s = call.sequence.shape;
        s.query_heads = trial.options.heads;
        trial.extras.indices = &call.ShardedTensors<T>::template add<Index>(
            "indices", Role::read, Held::rows, {s.batch, s.query_heads, s.queries, keys});
        trial.extras.indices->whole = ascending_lists(s, keys, 20, call.sequence.seed);
      });
    }
    case 2:
      return trial.run_softmax(drawn_strided(bytes));
    case 3:
      return trial.run(fovea::LinearAttention<fovea::EluPlusOne>({.causal = bytes.once_in(2)}));
    case 4:
      return trial.run(drawn_fmm<fovea::FmmOneKernel>(bytes, bytes.once_in(2)));
    case 5:
      return trial.run(fovea::DeltaRuleAttention<fovea::EluPlusOne>());
    case 6:
      return trial.run(fovea::PerformerAttention{{.causal = bytes.once_in(2)}});
    case 7: {
      const Index keys = bytes(1, 12);
      return trial.run(fovea::SmartBirdAttention({.keys_per_row = keys}));
    }
    case 8: {
      trial.options.length = bytes(1, 1600);
      trial.options.projected = bytes(1, 70);
      return trial.run(fovea::LinformerAttention());
    }
    case 9: {
      const Index landmarks = bytes(1, 20);
      return trial.run(fovea::NystroemAttention({.landmarks = landmarks}), landmarks);
    }
    case 10:
      return trial.run(drawn_fmm<fovea::FmmTwoKernelsFastWeight>(bytes, true));
    case 11: {
      fovea::FsatOptions options;
      options.max_length = 1600;
      if (bytes.once_in(2)) options.variance = 3;
      options.edges = bytes.once_in(2) ? fovea::EdgeSource::predicted : fovea::EdgeSource::both;
      const Index slots = bytes(1, 4);
      return trial.run(fovea::FsatAttention(options), 1, true, [&](ChannelTensors<T>& call) {
        const AttentionShape& s = call.sequence.shape;
        trial.extras.dominant = &call.ShardedTensors<T>::template add<T>(
            "dominant", Role::read, Held::rows, {s.batch, trial.options.heads, s.queries, slots},
            dominant_fill(call.sequence.seed + 3, 1600));
      });
    }
    default: {
      fovea::LongformerAttention op{{.left = bytes(0, 40), .right = bytes(0, 40)}};
      op.options.first_global = bytes(0, 3);
      trial.options.global_projections = bytes.once_in(2);
      return trial.run(op);
    }
  }
}

/// Blocks of a model in training.
template <class T>
void try_stack(Bytes& bytes) {
  using Attention = MultiHead<fovea::FullAttention, T>;
  using Block = fovea::EncoderBlock<Attention, T>;
  MultiHeadOptions options = drawn_heads_of_layer(bytes);
  const DrawnSequence sequence = drawn_tokens(bytes, 1, options.width, options.width);
  Initialiser initialiser(sequence.seed);
  std::vector<Block> blocks;
  for (Index n = bytes(0, 2); n >= 0; --n) {
    const fovea::FullAttention op{{.causal = bytes.once_in(2), .dropout = {.probability = 0.2}}};
    blocks.emplace_back(Attention(op, options, initialiser), options.width, bytes(1, 70),
                        initialiser, fovea::EncoderBlockOptions{.dropout = 0.3});
  }
  ChannelTensors<T> call(sequence, Held::rows);
  TokenExtras<T> extras;
  extras.has_lengths = true;
  if (bytes.once_in(2)) extras.training = {.seed = 9, .step = 1};
  try_layer<T>("EncoderStack", fovea::EncoderStack<Block>(blocks), call, extras, true, bytes);
}

template <class T>
void try_reformer(Bytes& bytes) {
  const MultiHeadOptions heads = drawn_heads_of_layer(bytes);
  const Index chunk = bytes(1, 40);
  const DrawnSequence sequence = drawn_tokens(bytes, chunk, heads.width, heads.width);
  Initialiser initialiser(sequence.seed);
  const fovea::ReformerLayer<T> layer({.width = heads.width,
                                       .heads = heads.heads,
                                       .head_width = heads.head_width,
                                       .bias = heads.bias,
                                       .attention = {.chunk = chunk,
                                                     .rounds = bytes(1, 3),
                                                     .buckets = 2 * bytes(1, 8),
                                                     .causal = bytes.once_in(2)}},
                                      initialiser);
  ChannelTensors<T> call(sequence, Held::rows);
  TokenExtras<T> extras;
  extras.has_lengths = true;
  try_layer<T>("ReformerLayer, chunk " + std::to_string(chunk), layer, call, extras, true, bytes);
}

TEST(DistributedDrawnLayers, EqualOneProcess) {
  each_drawn_over_ranks(120, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    const Index kind = bytes(0, 4);
    if (kind == 0) return try_stack<OtherScalar>(bytes);
    if (kind <= 2) return try_heads<float>(bytes);
    with_drawn_scalar(bytes, [&]<class T>(T) {
      kind == 3 && bytes.once_in(3) ? try_reformer<T>(bytes) : try_map<T>(bytes);
    });
  });
}

}  // namespace fovea_test::distributed_drawn_layers
