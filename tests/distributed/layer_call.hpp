// SPDX-License-Identifier: MIT
/// \file
/// A layer with its tensors, for tests that compare it over ranks with one process, and the layouts
/// that its weights allow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/distributed/sequence_parallel.hpp"
#include "fovea/layers.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

using fovea::Tokens;
using fovea::View;

/// The passes of a layer of tokens, or of one that reads x alone.
template <class Layer, class T, class E>
void forward_layer(Layer& layer, const Tokens<T>& tokens, const View<T>& y,
                   typename Layer::Saved& saved, E&& executor) {
  if constexpr (requires { layer.forward(tokens, y, saved, executor); }) {
    layer.forward(tokens, y, saved, executor);
  } else {
    layer.forward(tokens.x, y, saved, executor);
  }
}
template <class Layer, class T, class E>
void backward_layer(Layer& layer, const Tokens<T>& tokens, typename Layer::Saved& saved,
                    const View<const T>& d_y, const View<T>& d_x, E&& executor) {
  if constexpr (requires { layer.backward(tokens, saved, d_y, d_x, executor); }) {
    layer.backward(tokens, saved, d_y, d_x, executor);
  } else {
    layer.backward(tokens.x, saved, d_y, d_x, executor);
  }
}

/// All gradients of parameters, concatenated.
template <class T, class Layer>
std::vector<T> gradients_of(Layer& layer) {
  std::vector<T> all;
  fovea::for_each_parameter(layer, [&](auto& parameter) {
    const auto& sum = parameter.gradient_sum();
    all.insert(all.end(), sum.data(), sum.data() + sum.size());
  });
  return all;
}

/// A model of tokens, and what it is called with: sequences in descending order, and gaps.
template <class Layer, class T>
struct LayerCall {
  LayerCall(const Layer& layer, const Tensor<T>& tokens, const Tensor<T>& gradient)
      : model(layer),
        x(tokens.in({.gap = 3, .reversed = {true}})),
        d_y(gradient.in({.gap = 1, .reversed = {true}})),
        y(gradient.shape(), {.gap = 2}),
        d_x(tokens.shape(), {.gap = 5}) {}

  /// Two steps, so that the gradients of the second are added to those of the first.
  template <class E>
  void run(const Tokens<T>& with, E&& executor) {
    for (int step = 0; step < 2; ++step) {
      Tokens<T> tokens = with.with(View<const T>(x.view()));
      if (tokens.training) tokens.training->step += static_cast<std::uint64_t>(step);
      typename Layer::Saved saved;
      forward(tokens, saved, executor);
      backward(tokens, saved, executor);
    }
  }

  template <class E>
  void forward(const Tokens<T>& tokens, typename Layer::Saved& saved, E&& executor) {
    forward_layer(model, tokens, View<T>(y.view()), saved, executor);
  }
  template <class E>
  void backward(const Tokens<T>& tokens, typename Layer::Saved& saved, E&& executor) {
    backward_layer(model, tokens, saved, View<const T>(d_y.view()), View<T>(d_x.view()), executor);
  }

  std::vector<T> gradients() { return gradients_of<T>(model); }

  Layer model;
  Tensor<T> x, d_y, y, d_x;
};

/// Layouts whose ranges begin at multiples of kReductionBlock, also with ranks without rows.
inline std::vector<RowLayout> chain_layouts(Index rows) {
  const int ranks = all_ranks().size();
  std::vector<RowLayout> layouts = {RowLayout::contiguous(rows, ranks, fovea::kReductionBlock),
                                    RowLayout::zigzag(rows, ranks, fovea::kReductionBlock),
                                    RowLayout::block_cyclic(rows, ranks, fovea::kReductionBlock)};
  std::vector<std::vector<Range>> of_last(as_size(ranks));
  of_last.back().push_back({0, rows});
  layouts.emplace_back(of_last);
  return layouts;
}

/// Nearly equal numbers of tokens on all ranks, whose ranges begin at multiples of kReductionBlock.
inline Sharding chain_rows(Index rows) {
  return {all_ranks(), RowLayout::contiguous(rows, all_ranks().size(), fovea::kReductionBlock)};
}

/// The message that refuses layers over ranks. \param f called with the executor of these ranks
template <class F>
std::string refused_over(const Sharding& rows, const F& f) {
  return refusal([&] { fovea::distributed::sequence_parallel(rows, fovea::Serial{}, f); });
}

/// A layer's message for a key length of 501 if all ranks together have 500 tokens.
/// \param width channels of x, and of y
template <class T, class Layer>
std::string said_to_a_length_beyond(const Layer& layer, Index width) {
  const Sharding rows = chain_rows(500);
  const Tensor<T> x({1, 1, rows.own_count(), width});
  const Tensor<T> y(x.shape());
  const std::vector<Index> lengths = {501};
  return refused_over(rows, [&](auto& over) {
    layer.forward({View<const T>(x.view()), lengths}, y.view(), over);
  });
}

}  // namespace fovea_test
