// SPDX-License-Identifier: MIT
/// \file
/// A block of an encoder, which normalises the input of each of its parts.
#pragma once

#include "fovea/layers/feed_forward.hpp"
#include "fovea/layers/layer_norm.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// z = x + y for activations.
template <class T, class E>
void add_activations(const View<const T>& x, const View<const T>& y, const View<T>& z,
                     E&& executor) {
  constexpr double products = 8;  // an addition of elements takes their time
  const double of_row = products * static_cast<double>(x.width());
  for_each_row_block(executor, x.batch(), x.rows(), of_row, [&](Index b, Index first, Index count) {
    rows_of(z, b, first, count) = rows_of(x, b, first, count) + rows_of(y, b, first, count);
  });
}

}  // namespace detail

/// h = x + Attention(norm(x)) and y = h + FeedForward(norm(h)), for x and y [B, 1, L, Dm] with
/// dense rows. `AttentionLayer` is any layer of tokens: MultiHead of an operator, FsatLayer or
/// FatLayer.
template <class AttentionLayer, class T = float>
class EncoderBlock : public LayerCalls<EncoderBlock<AttentionLayer, T>, T, Tokens<T>> {
 public:
  AttentionLayer attention;  ///< The attention layer.

  /// What is kept from forward to backward, and room for both passes.
  struct Saved {
    typename LayerNorm<T>::Saved norm1;           ///< of the first normalisation
    typename LayerNorm<T>::Saved norm2;           ///< of the second normalisation
    typename AttentionLayer::Saved attention;     ///< of the attention layer
    typename FeedForward<T>::Saved feed_forward;  ///< of the feed-forward network
    Buffer<T> normal1;                            ///< [B, 1, L, Dm], as all that follow: norm(x)
    Buffer<T> hidden;                             ///< h
    Buffer<T> normal2;                            ///< norm(h)
    Buffer<T> part;                               ///< what is added to x or h, and its gradient
    Buffer<T> d_hidden;                           ///< the gradient of h
  };

  /// A layer without sizes, which has yet to be assigned to.
  EncoderBlock() = default;

  /// \param layer attention layer of tokens of this width
  /// \param width channels Dm of x and y
  /// \param hidden channels between the two maps of the feed-forward network
  /// \param initialiser draws the weights
  /// \throws std::invalid_argument if a size is below 1
  EncoderBlock(AttentionLayer layer, Index width, Index hidden, Initialiser& initialiser)
      : attention(std::move(layer)),
        norm1_(width, {.name = "norm1"}),
        norm2_(width, {.name = "norm2"}),
        feed_forward_(width, hidden, initialiser) {}

  /// Lists all parts.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.norm1_);
    f("attention", self.attention);
    f(self.norm2_);
    f(self.feed_forward_);
  }

  using LayerCalls<EncoderBlock<AttentionLayer, T>, T, Tokens<T>>::forward;
  /// Computes y, and keeps what `backward` needs.
  /// \throws std::invalid_argument as the parts
  /// \throws std::bad_alloc if there is no memory for what is kept
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& saved, E&& executor = {}) const {
    check_forward("EncoderBlock", tokens.x, norm1_.width(), y, norm1_.width());
    auto&& threads = as_executor(executor);
    const Shape& shape = y.shape();
    const View<T> normal1 = saved.normal1.resize(shape);
    const View<T> hidden = saved.hidden.resize(shape);
    const View<T> normal2 = saved.normal2.resize(shape);
    const View<T> part = saved.part.resize(shape);
    norm1_.forward(tokens.x, normal1, saved.norm1, threads);
    attention.forward(tokens.with(normal1), part, saved.attention, threads);
    detail::add_activations<T>(tokens.x, part, hidden, threads);
    norm2_.forward(hidden, normal2, saved.norm2, threads);
    feed_forward_.forward(normal2, part, saved.feed_forward, threads);
    detail::add_activations<T>(hidden, part, y, threads);
  }

  /// Adds to the gradients of the parameters. If d_x is given, it is written.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor = {}) {
    check_backward("EncoderBlock", tokens.x, norm1_.width(), d_y, norm1_.width(), d_x);
    check_saved("EncoderBlock", saved.hidden.view(), tokens.x);
    auto&& threads = as_executor(executor);
    const View<T> part = saved.part.view();
    const View<T> d_hidden = saved.d_hidden.resize(d_y.shape());
    feed_forward_.backward(saved.normal2.view(), saved.feed_forward, d_y, part, threads);
    norm2_.backward(saved.hidden.view(), saved.norm2, part, part, threads);
    detail::add_activations<T>(d_y, part, d_hidden, threads);
    attention.backward(tokens.with(saved.normal1.view()), saved.attention, d_hidden, part, threads);
    norm1_.backward(tokens.x, saved.norm1, part, part, threads);
    if (!d_x.is_none()) detail::add_activations<T>(d_hidden, part, d_x, threads);
  }

 private:
  LayerNorm<T> norm1_;
  LayerNorm<T> norm2_;
  FeedForward<T> feed_forward_;
};

FOVEA_NAMESPACE_END
