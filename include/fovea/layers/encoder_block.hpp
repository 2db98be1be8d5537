// SPDX-License-Identifier: MIT
/// \file
/// A pre-norm encoder block: the input of each part is normalised.
#pragma once

#include <optional>
#include <utility>

#include "fovea/layers/dropout.hpp"
#include "fovea/layers/encoder_block_decoder.hpp"
#include "fovea/layers/feed_forward.hpp"
#include "fovea/layers/layer_norm.hpp"

FOVEA_NAMESPACE_BEGIN

/// h = x + Attention(norm(x)) and y = h + FeedForward(norm(h)), for x and y [B, 1, L, Dm] with
/// dense rows. `AttentionLayer` is any layer of tokens: MultiHead of an operator, FsatLayer or
/// FatLayer. `Norm` is LayerNorm or RmsNorm, and `Network` FeedForward or GatedFeedForward, or a
/// type with the same interface. In training, dropout is applied to the outputs of attention and
/// network before the sums (Vaswani et al. 2017, section 5.4).
template <class AttentionLayer, class T = float, class Norm = LayerNorm<T>,
          class Network = FeedForward<T>>
class EncoderBlock
    : public LayerCalls<EncoderBlock<AttentionLayer, T, Norm, Network>, T, Tokens<T>> {
 public:
  /// The type of x and y.
  using Scalar = T;
  /// The attention layer's type.
  using Attention = AttentionLayer;

  AttentionLayer attention;  ///< The attention layer.

  /// State saved for backward, and buffers for both passes.
  struct Saved {
    typename Norm::Saved norm1;                ///< the first normalisation's
    typename Norm::Saved norm2;                ///< the second normalisation's
    typename AttentionLayer::Saved attention;  ///< the attention layer's
    typename Network::Saved feed_forward;      ///< the feed-forward network's
    Buffer<T> normal1;                         ///< [B, 1, L, Dm], as all that follow: norm(x)
    Buffer<T> hidden;                          ///< h
    Buffer<T> normal2;                         ///< norm(h)
    Buffer<T> part;                            ///< the term added to x or h, and its gradient
    Buffer<T> d_hidden;                        ///< the gradient of h
    Buffer<T> d_dropped;                       ///< a gradient of part, if elements were dropped
    std::optional<TrainingStep> training;      ///< the forward pass's step
  };

  /// An empty layer; assign one before use.
  EncoderBlock() = default;

  /// \param layer attention layer of tokens of this width
  /// \param width channels Dm of x and y
  /// \param hidden channels between the two maps of the feed-forward network
  /// \param initialiser draws the weights
  /// \param dropout dropout probability in training, in [0, 1)
  /// \throws std::invalid_argument if a size is below 1 or the dropout out of range
  EncoderBlock(AttentionLayer layer, Index width, Index hidden, Initialiser& initialiser,
               double dropout = 0)
      : EncoderBlock(std::move(layer), Network(width, hidden, initialiser), {}, dropout) {}

  /// Builds a block from parts.
  /// \param layer attention layer of tokens as wide as the network's
  /// \param network initialised \param epsilon of the normalisations; by default theirs
  /// \param dropout dropout probability in training, in [0, 1)
  /// \throws std::invalid_argument if epsilon is not above 0 or the dropout out of range
  EncoderBlock(AttentionLayer layer, Network network, std::optional<double> epsilon = {},
               double dropout = 0)
      : attention(std::move(layer)),
        norm1_(norm_of(network.width(), "norm1", epsilon)),
        norm2_(norm_of(network.width(), "norm2", epsilon)),
        feed_forward_(std::move(network)),
        dropout1_(dropout, DropoutPlace::after_attention),
        dropout2_(dropout, DropoutPlace::after_feed_forward) {}

  /// Lists all parts.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.norm1_);
    f("attention", self.attention);
    f(self.norm2_);
    f(self.feed_forward_);
  }

  using LayerCalls<EncoderBlock, T, Tokens<T>>::forward;
  /// Computes y, and saves what `backward` needs.
  /// \throws std::invalid_argument as the parts
  /// \throws std::bad_alloc if allocation fails
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& saved, E&& executor = {}) const {
    check_forward("EncoderBlock", tokens, width(), y, width());
    saved.training = tokens.training;
    run(
        tokens.x, y, saved,
        [&](const View<const T>& normal, const View<T>& part, auto&& threads) {
          attention.forward(tokens.with(normal), part, saved.attention, threads);
        },
        as_executor(executor));
  }

  /// Adds to the gradients of the parameters. If given, d_x is written.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor = {}) {
    check_backward("EncoderBlock", tokens, width(), d_y, width(), d_x);
    check_saved("EncoderBlock", saved.hidden.view(), tokens.x, width());
    check_training("EncoderBlock", saved.training, tokens.training);
    auto&& threads = as_executor(executor);
    const auto dropped = [&](const DropoutLayer<T>& dropout, const View<const T>& d) {
      return dropout.gradient(saved.training, d, saved.d_dropped, threads);
    };
    const View<T> part = saved.part.view();
    const View<T> d_hidden = saved.d_hidden.resize(d_y.shape());
    feed_forward_.backward(saved.normal2.view(), saved.feed_forward, dropped(dropout2_, d_y), part,
                           threads);
    norm2_.backward(saved.hidden.view(), saved.norm2, part, part, threads);
    detail::add_activations<T>(d_y, part, d_hidden, threads);
    attention.backward(tokens.with(saved.normal1.view()), saved.attention,
                       dropped(dropout1_, d_hidden), part, threads);
    norm1_.backward(tokens.x, saved.norm1, part, part, threads);
    if (!d_x.empty()) detail::add_activations<T>(d_hidden, part, d_x, threads);
  }

  /// The number of channels of x and y.
  Index width() const { return norm1_.width(); }

  /// A decoder: the same block, token by token.
  /// \throws as the attention layer's decoder
  template <class S = T>
  [[nodiscard]] EncoderBlockDecoder<EncoderBlock, S> decoder(
      const LayerDecoderShape& shape = {}) const {
    return {*this, shape};
  }

 private:
  template <class, class>
  friend class EncoderBlockDecoder;

  static Norm norm_of(Index width, const char* name, const std::optional<double>& epsilon) {
    if (!epsilon) return Norm(width, {.name = name});
    return Norm(width, {.epsilon = *epsilon, .name = name});
  }

  /// The forward pass of the saved step; attend(normal, part, threads) runs the attention layer.
  template <class Attend, class E>
  void run(const View<const T>& x, const View<T>& y, Saved& saved, Attend&& attend,
           E&& threads) const {
    const Shape& shape = y.shape();
    const View<T> normal1 = saved.normal1.resize(shape);
    const View<T> hidden = saved.hidden.resize(shape);
    const View<T> normal2 = saved.normal2.resize(shape);
    const View<T> part = saved.part.resize(shape);
    norm1_.forward(x, normal1, saved.norm1, threads);
    attend(normal1, part, threads);
    dropout1_.drop(saved.training, part, threads);
    detail::add_activations<T>(x, part, hidden, threads);
    norm2_.forward(hidden, normal2, saved.norm2, threads);
    feed_forward_.forward(normal2, part, saved.feed_forward, threads);
    dropout2_.drop(saved.training, part, threads);
    detail::add_activations<T>(hidden, part, y, threads);
  }

  Norm norm1_;
  Norm norm2_;
  Network feed_forward_;
  DropoutLayer<T> dropout1_;
  DropoutLayer<T> dropout2_;
};

FOVEA_NAMESPACE_END
