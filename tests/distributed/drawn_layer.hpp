// SPDX-License-Identifier: MIT
/// \file
/// Compares drawn calls of a layer over ranks with one process.
#pragma once

#include <optional>
#include <string>

#include "distributed/drawn_trial.hpp"
#include "distributed/layer_call.hpp"
#include "fovea/distributed/sequence_parallel.hpp"
#include "fovea/layers.hpp"

namespace fovea_test {

/// The tensors of a layer's call.
template <class T>
struct ChannelTensors : ShardedTensors<T> {
  /// \param s its width is that of x, and its value width that of y
  ChannelTensors(const DrawnSequence& s, Held of_y)
      : ShardedTensors<T>(s),
        x(channels("x", Role::read, Held::rows, s.shape.queries, s.shape.width, 1)),
        d_y(channels("d_out", Role::read, of_y, rows_of(of_y), s.shape.value_width, 2)),
        y(channels("y", Role::made, of_y, rows_of(of_y), s.shape.value_width, 0)),
        d_x(channels("d_x", Role::gradient, Held::rows, s.shape.queries, s.shape.width, 0)) {
    d_x.is_alike = true;
  }

  ShardedTensor<T>&x, &d_y, &y, &d_x;

 protected:
  /// Adds a tensor of [B, 1, rows, width]. \param seed what it is filled by, 0: it is not
  ShardedTensor<T>& channels(const char* name, Role role, Held held, Index rows, Index width,
                             std::uint64_t seed) {
    ShardedTensor<T>& made =
        this->template add<T>(name, role, held, {this->sequence.shape.batch, 1, rows, width},
                              seed == 0 ? Fill() : gaussian(this->sequence.seed + seed));
    made.has_dense_rows = true;
    return made;
  }

 private:
  /// The rows of a result: all ranks have all of them, or each has its tokens'.
  Index rows_of(Held held) const { return held == Held::whole ? 1 : this->sequence.shape.queries; }
};

/// Additional members of tokens for attention.
template <class T>
struct TokenExtras {
  ShardedTensor<T>* bias = nullptr;
  ShardedTensor<bool>* mask = nullptr;
  ShardedTensor<T>* d_bias = nullptr;
  ShardedTensor<Index>* indices = nullptr;
  ShardedTensor<T>* dominant = nullptr;
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
    fovea::for_each_parameter(layer, [](auto& parameter) {
      auto& sum = parameter.gradient_sum();
      for (Index n = 0; n < sum.size(); ++n) sum.data()[n] = static_cast<T>(n % 7);
    });
  }
};

/// Compares a layer's passes over ranks with one process.
/// \param forward, backward called as forward(run, where, executor) with a LayerRun
template <class T, class Layer, class Call, class Forward, class Backward>
void try_passes(const std::string& what, const Layer& layer, Call& call, bool can_go_back,
                Bytes& bytes, const Forward& forward, const Backward& backward) {
  LayerRun<Layer, T> whole(layer);
  LayerRun<Layer, T> own(layer);
  const auto call_with = [&](const auto& pass, Where where, auto&&... over_ranks) {
    if constexpr (sizeof...(over_ranks) == 0) {
      pass(whole, where, fovea::Serial{});
    } else {
      return fovea::distributed::sequence_parallel(over_ranks...,
                                                   [&](auto& over) { pass(own, where, over); });
    }
  };
  Passes passes;
  passes.has_backward = can_go_back && !bytes.once_in(3);
  passes.refuses = false;
  // Sums and means over tokens are divided at reduction blocks.
  const bool sums_tokens = passes.has_backward || std::is_same_v<Layer, fovea::MeanPool<T>>;
  const RowLayout layout = drawn_row_layout(bytes, call.sequence.shape.queries,
                                            sums_tokens ? fovea::kReductionBlock : Index{1});
  compare_sharded(
      what, call, passes, nullptr, layout, bytes,
      [&](Where where, auto&&... over_ranks) { return call_with(forward, where, over_ranks...); },
      [&](Where where, auto&&... over_ranks) { return call_with(backward, where, over_ranks...); });
  if (passes.has_backward)
    expect_whole(gradients_of<T>(own.layer), gradients_of<T>(whole.layer), "of parameters");
}

/// The same of a layer of tokens.
/// \param extras tensors of `call`
template <class T, class Layer>
void try_layer(const std::string& what, const Layer& layer, ChannelTensors<T>& call,
               const TokenExtras<T>& extras, bool can_go_back, Bytes& bytes) {
  try_passes<T>(
      what, layer, call, can_go_back, bytes,
      [&](auto& run, Where where, auto&& executor) {
        forward_layer(run.layer, extras.tokens(call, where), call.y.in(where), run.saved, executor);
      },
      [&](auto& run, Where where, auto&& executor) {
        if (extras.d_bias != nullptr) {
          const auto& d_bias = *extras.d_bias;
          (where == Where::ranks ? d_bias.own : d_bias.whole).fill(constant(0));
        }
        const View<const T> d_y(call.d_y.in(where));
        backward_layer(run.layer, extras.tokens(call, where), run.saved, d_y, call.d_x.in(where),
                       executor);
      });
}

/// Sizes of tokens: a few of few channels, none, or many of a few chains.
inline DrawnSequence drawn_tokens(Bytes& bytes, Index multiple, Index width, Index out) {
  DrawnSequence sequence(bytes, multiple, 1500);
  AttentionShape& s = sequence.shape;
  s.width = width;
  s.value_width = out;
  return sequence;
}

/// Heads of drawn numbers and widths.
inline fovea::MultiHeadOptions drawn_heads_of_layer(Bytes& bytes) {
  fovea::MultiHeadOptions options;
  options.key_heads = bytes(1, 2);
  options.heads = options.key_heads * bytes(1, 3);
  options.head_width = 2 * bytes(1, 9);
  options.width = bytes(1, 50);
  options.bias = bytes.once_in(2);
  options.sketch_width = bytes(1, 5);
  options.features = bytes(1, 40);
  return options;
}

}  // namespace fovea_test
