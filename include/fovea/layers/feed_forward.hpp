// SPDX-License-Identifier: MIT
/// \file
/// The feed-forward network of an encoder block: a linear map, GELU, and a linear map.
#pragma once

#include "fovea/layers/gelu.hpp"
#include "fovea/layers/hidden_map.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of FeedForward.
struct FeedForwardOptions {
  GeluForm gelu = GeluForm::erf;  ///< the form of GELU
};

/// y = GELU(x W1 + b1) W2 + b2, for x and y [B, 1, L, C] with dense rows. It costs 4 C Hidden flops
/// per token, and 8 C Hidden in the backward pass.
template <class T>
class FeedForward : public LayerCalls<FeedForward<T>, T> {
 public:
  /// State saved for backward, and buffers for gradients.
  struct Saved {
    typename HiddenMap<T>::Saved map;  ///< the first map's and its GELU's
    Buffer<T> hidden;                  ///< [B, 1, L, Hidden] the input of the second map
    Buffer<T> d_hidden;                ///< [B, 1, L, Hidden] its gradient
  };

  /// An empty layer; assign one before use.
  FeedForward() = default;

  /// \param width channels C of x and y
  /// \param hidden channels between the two maps
  /// \param initialiser draws the weights
  /// \param options which GELU
  /// \throws std::invalid_argument if a size is below 1
  FeedForward(Index width, Index hidden, Initialiser& initialiser,
              const FeedForwardOptions& options = {})
      : map_(width, hidden, initialiser,
             {.name = "feed_forward.in", .activation = activation_of(options.gelu)}),
        linear_(hidden, width, initialiser, {.name = "feed_forward.out"}) {}

  /// The number of channels of x and y.
  Index width() const { return linear_.out(); }

  /// Lists both maps.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.map_);
    f(self.linear_);
  }

  using LayerCalls<FeedForward<T>, T>::forward;
  /// Computes y, and saves what `backward` needs.
  /// \throws std::invalid_argument if a shape or layout is wrong
  /// \throws std::bad_alloc if allocation fails
  template <class E = Serial>
  void forward(const View<const T>& x, const View<T>& y, Saved& saved, E&& executor = {}) const {
    check_forward("FeedForward", x, width(), y, width());
    const View<T> hidden = saved.hidden.resize(x.batch(), x.rows(), linear_.in());
    map_.forward(x, hidden, saved.map, executor);
    linear_.forward(hidden, y, executor);
  }

  /// Adds to the gradients of the parameters. If given, d_x is written.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const View<const T>& x, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor = {}) {
    check_backward("FeedForward", x, width(), d_y, width(), d_x);
    check_saved("FeedForward", saved.hidden.view(), x, linear_.in());
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
