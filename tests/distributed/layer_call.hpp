// SPDX-License-Identifier: MIT
/// \file
/// A layer with its tensors, for tests that run it over ranks and in one process, and the layouts
/// that its weights allow.
#pragma once

#include <cstdint>
#include <vector>

#include "fovea/layers.hpp"
#include "support/ranks.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

using fovea::Tokens;
using fovea::View;

/// A model of tokens, and what it is called with.
template <class Layer, class T>
struct LayerCall {
  LayerCall(const Layer& layer, const Tensor<T>& tokens, const Tensor<T>& gradient)
      : model(layer),
        x(tokens.in({})),
        d_y(gradient.in({})),
        y(gradient.shape()),
        d_x(tokens.shape()) {}

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
    if constexpr (requires { model.forward(tokens, y.view(), saved, executor); }) {
      model.forward(tokens, y.view(), saved, executor);
    } else {
      model.forward(tokens.x, y.view(), saved, executor);
    }
  }
  template <class E>
  void backward(const Tokens<T>& tokens, typename Layer::Saved& saved, E&& executor) {
    const View<const T> d(d_y.view());
    if constexpr (requires { model.backward(tokens, saved, d, d_x.view(), executor); }) {
      model.backward(tokens, saved, d, d_x.view(), executor);
    } else {
      model.backward(tokens.x, saved, d, d_x.view(), executor);
    }
  }

  /// All gradients of parameters, one behind the other.
  std::vector<T> gradients() {
    std::vector<T> all;
    fovea::for_each_parameter(model, [&](auto& parameter) {
      const auto& sum = parameter.gradient_sum();
      all.insert(all.end(), sum.data(), sum.data() + sum.size());
    });
    return all;
  }

  Layer model;
  Tensor<T> x, d_y, y, d_x;
};

/// Layouts whose ranges begin at multiples of kChain, also with ranks without rows.
inline std::vector<RowLayout> chain_layouts(Index rows) {
  const int ranks = all_ranks().size();
  std::vector<RowLayout> layouts = {RowLayout::contiguous(rows, ranks, fovea::kChain),
                                    RowLayout::zigzag(rows, ranks, fovea::kChain),
                                    RowLayout::block_cyclic(rows, ranks, fovea::kChain)};
  std::vector<std::vector<Range>> of_last(as_size(ranks));
  of_last.back().push_back({0, rows});
  layouts.emplace_back(of_last);
  return layouts;
}

}  // namespace fovea_test
