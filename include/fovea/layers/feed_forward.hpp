// SPDX-License-Identifier: MIT
/// \file
/// The feed-forward network of an encoder block: linear, GELU, linear.
#pragma once

#include "fovea/layers/hidden_map.hpp"

FOVEA_NAMESPACE_BEGIN

/// y = GELU(x W1 + b1) W2 + b2 for x and y [B, 1, L, C] with dense rows.
/// Cost: 4 C Hidden flops per token forward, 8 C Hidden backward.
template <class T>
class FeedForward : public LayerCalls<FeedForward<T>, T> {
 public:
  struct Saved {
    typename HiddenMap<T>::Saved map;
    Buffer<T> hidden;  ///< [B, 1, L, Hidden]
    Buffer<T> d_hidden;
  };

  FeedForward() = default;

  /// \throws std::invalid_argument a size below 1
  FeedForward(Index width, Index hidden, Initialiser& initialiser)
      : map_(width, hidden, initialiser, {.name = "feed_forward.in"}),
        linear_(hidden, width, initialiser, {.name = "feed_forward.out"}) {}

  Index width() const { return linear_.out(); }

  template <class F>
  void visit(F&& f) {
    map_.visit(f);
    linear_.visit(f);
  }

  using LayerCalls<FeedForward<T>, T>::forward;
  /// \throws std::invalid_argument naming tensor, dimension, expected and got; std::bad_alloc
  template <class E = Serial>
  void forward(const View<const T>& x, const View<T>& y, Saved& saved, E&& executor = {}) const {
    check_forward("FeedForward", x, width(), y, width());
    const View<T> hidden = saved.hidden.resize(x.batch(), x.rows(), linear_.in());
    map_.forward(x, hidden, saved.map, executor);
    linear_.forward(hidden, y, executor);
  }

  /// Adds to the gradients of the parameters; writes d_x if it is given.
  template <class E = Serial>
  void backward(const View<const T>& x, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor = {}) {
    check_backward("FeedForward", x, width(), d_y, width(), d_x);
    check_saved("FeedForward", saved.hidden.view(), x);
    const View<T> d_hidden = saved.d_hidden.resize(x.batch(), x.rows(), linear_.in());
    typename Linear<T>::Saved nothing;
    linear_.backward(saved.hidden.view(), nothing, d_y, d_hidden, executor);
    map_.backward(x, saved.map, d_hidden, d_x, executor);
  }

 private:
  HiddenMap<T> map_;
  Linear<T> linear_;
};

FOVEA_NAMESPACE_END
