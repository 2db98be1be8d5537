// SPDX-License-Identifier: MIT
/// \file
/// Layers over ranks, with drawn options, sizes, data and places: the bits are those of one
/// process, also of the gradients of all parameters.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "attention/dominant_fill.hpp"
#include "distributed/drawn_trial.hpp"
#include "fovea/distributed.hpp"
#include "fovea/layers.hpp"

namespace fovea_test::distributed_drawn_layers {

using fovea::Initialiser;
using fovea::kChain;
using fovea::MultiHead;
using fovea::MultiHeadOptions;
using fovea::Tokens;
using fovea::distributed::with_rows;

/// The tensors of a layer's call.
template <class T>
struct ChannelTensors : SpreadTensors<T> {
  /// \param s its width is that of x, and its value width that of y
  ChannelTensors(const DrawnSequence& s, Held of_y)
      : SpreadTensors<T>(s),
        x(add("x", Role::read, Held::rows, s.shape.width, 1)),
        d_y(add("d_out", Role::read, of_y, s.shape.value_width, 2)),
        y(add("y", Role::made, of_y, s.shape.value_width, 0)),
        d_x(add("d_x", Role::gradient, Held::rows, s.shape.width, 0)) {
    d_x.is_alike = true;
  }

  SpreadTensor<T>&x, &d_y, &y, &d_x;

 private:
  SpreadTensor<T>& add(const char* name, Role role, Held held, Index width, std::uint64_t seed) {
    const AttentionShape& s = this->sequence.shape;
    const Index rows = held == Held::whole ? 1 : s.queries;
    SpreadTensor<T>& made =
        SpreadTensors<T>::add(name, role, held, {s.batch, 1, rows, width},
                              seed == 0 ? Fill() : gaussian(this->sequence.seed + seed));
    made.has_dense_rows = true;
    return made;
  }
};

/// What tokens of attention have besides.
template <class T>
struct TokenExtras {
  SpreadTensor<T>* bias = nullptr;
  SpreadTensor<bool>* mask = nullptr;
  SpreadTensor<T>* d_bias = nullptr;
  SpreadTensor<Index>* indices = nullptr;
  SpreadTensor<T>* dominant = nullptr;
  std::optional<fovea::TrainingStep> training = {};
  bool has_lengths = false;

  Tokens<T> tokens(const ChannelTensors<T>& call, Where where) const {
    Tokens<T> made(View<const T>(call.x.in(where)));
    if (has_lengths) made.key_lengths = call.sequence.lengths;
    if (bias != nullptr) made.bias = bias->in(where);
    if (mask != nullptr) made.mask = mask->in(where);
    if (d_bias != nullptr) made.d_bias = d_bias->in(where);
    if (indices != nullptr) made.indices = indices->in(where);
    if (dominant != nullptr) made.dominant = dominant->in(where);
    made.training = training;
    return made;
  }
};

/// A layer with what it keeps.
template <class Layer, class T>
struct LayerRun {
  Layer layer;
  typename Layer::Saved saved{};

  explicit LayerRun(const Layer& drawn) : layer(drawn) {
    // Gradients are added to what is there.
    for_each_parameter([](auto& sum) {
      for (Index n = 0; n < sum.size(); ++n) sum.data()[n] = static_cast<T>(n % 7);
    });
  }

  template <class F>
  void for_each_parameter(const F& f) {
    fovea::for_each_parameter(layer, [&](auto& parameter) { f(parameter.gradient_sum()); });
  }
  std::vector<T> gradients() {
    std::vector<T> all;
    for_each_parameter(
        [&](auto& sum) { all.insert(all.end(), sum.data(), sum.data() + sum.size()); });
    return all;
  }

  template <class E>
  void forward(const Tokens<T>& tokens, const View<T>& y, E&& executor) {
    if constexpr (requires { layer.forward(tokens, y, saved, executor); }) {
      layer.forward(tokens, y, saved, executor);
    } else {
      layer.forward(tokens.x, y, saved, executor);
    }
  }
  template <class E>
  void backward(const Tokens<T>& tokens, const View<const T>& d_y, const View<T>& d_x,
                E&& executor) {
    if constexpr (requires { layer.backward(tokens, saved, d_y, d_x, executor); }) {
      layer.backward(tokens, saved, d_y, d_x, executor);
    } else {
      layer.backward(tokens.x, saved, d_y, d_x, executor);
    }
  }
};

/// \param extras tensors of `call`
template <class T, class Layer>
void try_layer(const std::string& what, const Layer& layer, ChannelTensors<T>& call,
               const TokenExtras<T>& extras, bool can_go_back, Bytes& bytes) {
  LayerRun<Layer, T> whole(layer);
  LayerRun<Layer, T> own(layer);
  const auto forward = [&](Where where, auto&&... over_ranks) {
    if constexpr (sizeof...(over_ranks) == 0) {
      whole.forward(extras.tokens(call, where), call.y.in(where), fovea::Serial{});
    } else {
      with_rows(over_ranks..., [&](auto& over) {
        own.forward(extras.tokens(call, where), call.y.in(where), over);
      });
    }
  };
  const auto backward = [&](Where where, auto&&... over_ranks) {
    if (extras.d_bias != nullptr) {
      const auto& d_bias = *extras.d_bias;
      (where == Where::ranks ? d_bias.own : d_bias.whole).fill(constant(0));
    }
    const View<const T> d_y(call.d_y.in(where));
    if constexpr (sizeof...(over_ranks) == 0) {
      whole.backward(extras.tokens(call, where), d_y, call.d_x.in(where), fovea::Serial{});
    } else {
      with_rows(over_ranks..., [&](auto& over) {
        own.backward(extras.tokens(call, where), d_y, call.d_x.in(where), over);
      });
    }
  };
  Passes passes;
  passes.has_backward = can_go_back && !bytes.once_in(3);
  passes.refuses = false;
  // Sums over tokens are cut at chains, and so is a mean.
  const bool sums_tokens = passes.has_backward || std::is_same_v<Layer, fovea::MeanPool<T>>;
  const RowLayout layout =
      drawn_row_layout(bytes, call.sequence.shape.queries, sums_tokens ? kChain : Index{1});
  compare_spread(what, call, passes, nullptr, layout, layout, bytes, forward, backward);
  if (passes.has_backward) expect_whole(own.gradients(), whole.gradients(), "of parameters");
}

/// Sizes of tokens: a few of few channels, none, or many of a few chains.
DrawnSequence drawn_tokens(Bytes& bytes, Index multiple, Index width, Index out) {
  DrawnSequence sequence(bytes, multiple, 1500);
  AttentionShape& s = sequence.shape;
  s.width = width;
  s.value_width = out;
  return sequence;
}

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

/// Heads of drawn numbers and widths.
MultiHeadOptions drawn_heads_of_layer(Bytes& bytes) {
  MultiHeadOptions options;
  options.key_heads = bytes(1, 2);
  options.heads = options.key_heads * bytes(1, 3);
  options.head_width = 2 * bytes(1, 9);
  options.width = bytes(1, 50);
  options.bias = bytes.once_in(2);
  options.sketch_width = bytes(1, 5);
  options.features = bytes(1, 40);
  return options;
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
    try_layer<T>(std::string("MultiHead of ") + Op::name() + ", H " +
                     std::to_string(options.heads) + ", Hk " + std::to_string(options.key_heads) +
                     ", D " + std::to_string(options.head_width),
                 MultiHead<Op, T>(op, options, initialiser), call, extras, can_go_back, bytes);
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
    extras.has_lengths = true;
    const Extras drawn = drawn_extras(bytes);
    run(op, 1, true, [&](ChannelTensors<T>& call) {
      AttentionShape s = call.sequence.shape;
      s.query_heads = options.heads;
      const std::uint64_t seed = call.sequence.seed;
      if (!drawn.bias.empty()) {
        extras.bias = &call.SpreadTensors<T>::template add<T>(
            "bias", Role::read, Held::logits, logits_shape(s, drawn.bias), bias_fill(seed, drawn));
      }
      if (!drawn.mask.empty()) {
        extras.mask = &call.SpreadTensors<T>::template add<bool>(
            "mask", Role::read, Held::logits, logits_shape(s, drawn.mask), mask_fill(seed));
      }
      if (drawn.bias.find('q') == std::string::npos || bytes.once_in(2)) return;
      extras.d_bias = &call.SpreadTensors<T>::template add<T>("d_bias", Role::gradient, Held::rows,
                                                              logits_shape(s, drawn.bias));
      extras.d_bias->is_due = true;
    });
  }
};

template <class T>
void try_heads(Bytes& bytes) {
  HeadsTrial<T> trial{bytes};
  switch (bytes(0, 11)) {
    case 0:
    case 1:
      return trial.run_softmax(drawn_full(bytes));
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
      trial.extras.has_lengths = true;
      const Index keys = bytes(1, 12);
      return trial.run(fovea::SmartBirdAttention({.keys_per_row = keys}));
    }
    case 8: {
      trial.extras.has_lengths = true;
      trial.options.length = bytes(1, 1600);
      trial.options.projected = bytes(1, 70);
      return trial.run(fovea::LinformerAttention());
    }
    case 9: {
      const Index landmarks = bytes(1, 20);
      trial.extras.has_lengths = true;
      return trial.run(fovea::NystroemAttention({.landmarks = landmarks}), landmarks);
    }
    case 10: {
      fovea::FsatOptions options;
      options.max_length = 1600;
      if (bytes.once_in(2)) options.variance = 3;
      options.edges = bytes.once_in(2) ? fovea::EdgeSource::predicted : fovea::EdgeSource::both;
      const Index slots = bytes(1, 4);
      trial.extras.has_lengths = true;
      return trial.run(fovea::FsatAttention(options), 1, true, [&](ChannelTensors<T>& call) {
        const AttentionShape& s = call.sequence.shape;
        trial.extras.dominant = &call.SpreadTensors<T>::template add<T>(
            "dominant", Role::read, Held::rows, {s.batch, trial.options.heads, s.queries, slots},
            dominant_fill(call.sequence.seed + 3, 1600));
      });
    }
    default: {
      fovea::LongformerAttention op{{.left = bytes(0, 40), .right = bytes(0, 40)}};
      op.options.first_global = 0;
      trial.extras.has_lengths = true;
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
                        initialiser, 0.3);
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

TEST(DistributedDrawnLayers, HaveTheBitsOfOneProcess) {
  each_drawn_over_ranks(60, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    const Index kind = bytes(0, 4);
    if (kind == 0) return try_stack<double>(bytes);
    if (kind <= 2) return try_heads<float>(bytes);
    with_drawn_scalar(bytes, [&]<class T>(T) {
      kind == 3 && bytes.once_in(3) ? try_reformer<T>(bytes) : try_map<T>(bytes);
    });
  });
}

}  // namespace fovea_test::distributed_drawn_layers
