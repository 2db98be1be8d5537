// SPDX-License-Identifier: MIT
/// \file
/// A post-norm encoder block: the sum of each part and its input is normalised (Vaswani et al.
/// 2017, section 3.1), as in BERT (Devlin et al. 2019).
#pragma once

#include <optional>
#include <utility>

#include "fovea/layers/elementwise.hpp"
#include "fovea/layers/encoder_block_decoder.hpp"
#include "fovea/layers/feed_forward.hpp"
#include "fovea/layers/layer_norm.hpp"

FOVEA_NAMESPACE_BEGIN

/// h = norm1(x + Attention(x)) and y = norm2(h + FeedForward(h)), for x and y [B, 1, L, Dm] with
/// dense rows. Calls, decoding, part types and use in an EncoderStack are as for EncoderBlock,
/// which normalises before each part instead.
template <class AttentionLayer, class T = float, class Norm = LayerNorm<T>,
          class Network = FeedForward<T>>
class PostNormBlock
    : public LayerCalls<PostNormBlock<AttentionLayer, T, Norm, Network>, T, Tokens<T>> {
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
    Buffer<T> sum1;                            ///< [B, 1, L, Dm], as all that follow: x + Attention
    Buffer<T> hidden;                          ///< h
    Buffer<T> sum2;                            ///< h + FeedForward(h)
    Buffer<T> d_hidden;                        ///< the gradient of h
    Buffer<T> d_sum;                           ///< the gradient of either sum
  };

  /// An empty layer; assign one before use.
  PostNormBlock() = default;

  /// \param layer attention layer of tokens of this width
  /// \param width channels Dm of x and y
  /// \param hidden channels between the two maps of the feed-forward network
  /// \param initialiser draws the weights
  /// \throws std::invalid_argument if a size is below 1
  PostNormBlock(AttentionLayer layer, Index width, Index hidden, Initialiser& initialiser)
      : PostNormBlock(std::move(layer), Network(width, hidden, initialiser)) {}

  /// Builds a block from parts.
  /// \param layer attention layer of tokens as wide as the network's
  /// \param network initialised \param epsilon of the normalisations; by default theirs
  /// \throws std::invalid_argument if epsilon is not above 0
  PostNormBlock(AttentionLayer layer, Network network, std::optional<double> epsilon = {})
      : attention(std::move(layer)),
        norm1_(norm_of(network.width(), "norm1", epsilon)),
        feed_forward_(std::move(network)),
        norm2_(norm_of(feed_forward_.width(), "norm2", epsilon)) {}

  /// Lists all parts.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f("attention", self.attention);
    f(self.norm1_);
    f(self.feed_forward_);
    f(self.norm2_);
  }

  using LayerCalls<PostNormBlock, T, Tokens<T>>::forward;
  /// Computes y, and saves what `backward` needs.
  /// \throws std::invalid_argument as the parts
  /// \throws std::bad_alloc if allocation fails
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& saved, E&& executor = {}) const {
    check_forward("PostNormBlock", tokens, width(), y, width());
    run(
        tokens.x, y, saved,
        [&](const View<const T>& x, const View<T>& part, auto&& threads) {
          attention.forward(tokens.with(x), part, saved.attention, threads);
        },
        as_executor(executor));
  }

  /// Adds to the gradients of the parameters. If given, d_x is written.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor = {}) {
    check_backward("PostNormBlock", tokens, width(), d_y, width(), d_x);
    check_saved("PostNormBlock", saved.hidden.view(), tokens.x, width());
    auto&& threads = as_executor(executor);
    const View<T> d_sum = saved.d_sum.resize(d_y.shape());
    const View<T> d_hidden = saved.d_hidden.resize(d_y.shape());
    norm2_.backward(saved.sum2.view(), saved.norm2, d_y, d_sum, threads);
    feed_forward_.backward(saved.hidden.view(), saved.feed_forward, d_sum, d_hidden, threads);
    detail::add_activations<T>(d_sum, d_hidden, d_hidden, threads);
    norm1_.backward(saved.sum1.view(), saved.norm1, d_hidden, d_sum, threads);
    attention.backward(tokens, saved.attention, d_sum, d_x, threads);
    if (!d_x.empty()) detail::add_activations<T>(d_sum, d_x, d_x, threads);
  }

  /// The number of channels of x and y.
  Index width() const { return norm1_.width(); }

  /// A decoder: the same block, token by token.
  /// \throws as the attention layer's decoder
  template <class S = T>
  [[nodiscard]] EncoderBlockDecoder<PostNormBlock, S> decoder(
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

  /// The forward pass; attend(x, part, threads) runs the attention layer.
  template <class Attend, class E>
  void run(const View<const T>& x, const View<T>& y, Saved& saved, Attend&& attend,
           E&& threads) const {
    const View<T> sum1 = saved.sum1.resize(y.shape());
    const View<T> hidden = saved.hidden.resize(y.shape());
    const View<T> sum2 = saved.sum2.resize(y.shape());
    attend(x, sum1, threads);
    detail::add_activations<T>(x, sum1, sum1, threads);
    norm1_.forward(sum1, hidden, saved.norm1, threads);
    feed_forward_.forward(hidden, sum2, saved.feed_forward, threads);
    detail::add_activations<T>(hidden, sum2, sum2, threads);
    norm2_.forward(sum2, y, saved.norm2, threads);
  }

  Norm norm1_;
  Network feed_forward_;
  Norm norm2_;
};

FOVEA_NAMESPACE_END
