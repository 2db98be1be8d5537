// SPDX-License-Identifier: MIT
/// \file
/// A block of an encoder: attention and a feed-forward network, each with a residual connection and
/// a normalisation before it (pre-norm) or after the sum (post-norm).
#pragma once

#include <optional>
#include <utility>

#include "fovea/layers/dropout.hpp"
#include "fovea/layers/encoder_block_decoder.hpp"
#include "fovea/layers/feed_forward.hpp"
#include "fovea/layers/layer_norm.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of EncoderBlock.
struct EncoderBlockOptions {
  /// If true, the input of each part is normalised; otherwise the sum of its input and output is.
  bool norm_first = true;
  double dropout = 0;                  ///< dropout probability in training, in [0, 1)
  std::optional<double> epsilon = {};  ///< of the normalisations; by default theirs
};

/// For x and y [B, 1, L, Dm] with dense rows,
///
///     h = x + Attention(norm1(x)),   y = h + FeedForward(norm2(h))     with norm_first
///     h = norm1(x + Attention(x)),   y = norm2(h + FeedForward(h))     otherwise
///
/// The first form is that of GPT-2 and Llama, the second that of the original Transformer (Vaswani
/// et al. 2017, section 3.1) and of BERT (Devlin et al. 2019). `AttentionLayer` is any layer of
/// tokens: MultiHead of an operator, FsatLayer or FatLayer. `Norm` is LayerNorm or RmsNorm, and
/// `Network` FeedForward or GatedFeedForward, or a type with the same interface. In training,
/// dropout is applied to the outputs of attention and network before the sums (Vaswani et al. 2017,
/// section 5.4).
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
    Buffer<T> first;      ///< [B, 1, L, Dm], as all that follow: norm1's output, or else its input
    Buffer<T> hidden;     ///< h
    Buffer<T> second;     ///< norm2's output, or else its input
    Buffer<T> part;       ///< the term added to x or h, and a gradient
    Buffer<T> d_hidden;   ///< the gradient of h
    Buffer<T> d_dropped;  ///< a gradient of part, if elements were dropped
    std::optional<TrainingStep> training;  ///< the forward pass's step
  };

  /// An empty layer; assign one before use.
  EncoderBlock() = default;

  /// \param layer attention layer of tokens of this width
  /// \param width channels Dm of x and y
  /// \param hidden channels between the two maps of the feed-forward network
  /// \param initialiser draws the weights
  /// \throws std::invalid_argument if a size is below 1 or an option out of range
  EncoderBlock(AttentionLayer layer, Index width, Index hidden, Initialiser& initialiser,
               const EncoderBlockOptions& options = {})
      : EncoderBlock(std::move(layer), Network(width, hidden, initialiser), options) {}

  /// Builds a block from parts.
  /// \param layer attention layer of tokens as wide as the network's
  /// \param network initialised
  /// \throws std::invalid_argument if an option is out of range
  EncoderBlock(AttentionLayer layer, Network network, const EncoderBlockOptions& options = {})
      : attention(std::move(layer)),
        norm_first_(options.norm_first),
        norm1_(norm_of(network.width(), "norm1", options.epsilon)),
        norm2_(norm_of(network.width(), "norm2", options.epsilon)),
        feed_forward_(std::move(network)),
        dropout1_(options.dropout, DropoutPlace::after_attention),
        dropout2_(options.dropout, DropoutPlace::after_feed_forward) {}

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
    saved.part.resize(d_y.shape());
    saved.d_hidden.resize(d_y.shape());
    if (norm_first_) {
      backward_of_pre_norm(tokens, saved, d_y, d_x, threads);
    } else {
      backward_of_post_norm(tokens, saved, d_y, d_x, threads);
    }
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

  /// The forward pass of the saved step; attend(x, part, threads) runs the attention layer.
  template <class Attend, class E>
  void run(const View<const T>& x, const View<T>& y, Saved& saved, Attend&& attend,
           E&& threads) const {
    const View<T> first = saved.first.resize(y.shape());
    const View<T> hidden = saved.hidden.resize(y.shape());
    const View<T> second = saved.second.resize(y.shape());
    const auto add = [&](const View<const T>& input, const DropoutLayer<T>& dropout,
                         const View<T>& part, const View<T>& sum) {
      dropout.drop(saved.training, part, threads);
      detail::add_activations<T>(input, part, sum, threads);
    };
    if (norm_first_) {
      const View<T> part = saved.part.resize(y.shape());
      norm1_.forward(x, first, saved.norm1, threads);
      attend(first, part, threads);
      add(x, dropout1_, part, hidden);
      norm2_.forward(hidden, second, saved.norm2, threads);
      feed_forward_.forward(second, part, saved.feed_forward, threads);
      add(hidden, dropout2_, part, y);
    } else {
      attend(x, first, threads);
      add(x, dropout1_, first, first);
      norm1_.forward(first, hidden, saved.norm1, threads);
      feed_forward_.forward(hidden, second, saved.feed_forward, threads);
      add(hidden, dropout2_, second, second);
      norm2_.forward(second, y, saved.norm2, threads);
    }
  }

  template <class E>
  void backward_of_pre_norm(const Tokens<T>& tokens, Saved& saved, const View<const T>& d_y,
                            const View<T>& d_x, E&& threads) {
    const View<T> part = saved.part.view();
    const View<T> d_hidden = saved.d_hidden.view();
    feed_forward_.backward(saved.second.view(), saved.feed_forward,
                           dropped(dropout2_, saved, d_y, threads), part, threads);
    norm2_.backward(saved.hidden.view(), saved.norm2, part, part, threads);
    detail::add_activations<T>(d_y, part, d_hidden, threads);
    attention.backward(tokens.with(saved.first.view()), saved.attention,
                       dropped(dropout1_, saved, d_hidden, threads), part, threads);
    norm1_.backward(tokens.x, saved.norm1, part, part, threads);
    if (!d_x.empty()) detail::add_activations<T>(d_hidden, part, d_x, threads);
  }

  template <class E>
  void backward_of_post_norm(const Tokens<T>& tokens, Saved& saved, const View<const T>& d_y,
                             const View<T>& d_x, E&& threads) {
    const View<T> d_sum = saved.part.view();
    const View<T> d_hidden = saved.d_hidden.view();
    norm2_.backward(saved.second.view(), saved.norm2, d_y, d_sum, threads);
    feed_forward_.backward(saved.hidden.view(), saved.feed_forward,
                           dropped(dropout2_, saved, d_sum, threads), d_hidden, threads);
    detail::add_activations<T>(d_sum, d_hidden, d_hidden, threads);
    norm1_.backward(saved.first.view(), saved.norm1, d_hidden, d_sum, threads);
    attention.backward(tokens, saved.attention, dropped(dropout1_, saved, d_sum, threads), d_x,
                       threads);
    if (!d_x.empty()) detail::add_activations<T>(d_sum, d_x, d_x, threads);
  }

  /// The gradient of a part from that of its sum with the input.
  template <class E>
  static View<const T> dropped(const DropoutLayer<T>& dropout, Saved& saved,
                               const View<const T>& d_sum, E&& threads) {
    return dropout.gradient(saved.training, d_sum, saved.d_dropped, threads);
  }

  bool norm_first_ = true;
  Norm norm1_;
  Norm norm2_;
  Network feed_forward_;
  DropoutLayer<T> dropout1_;
  DropoutLayer<T> dropout2_;
};

FOVEA_NAMESPACE_END
