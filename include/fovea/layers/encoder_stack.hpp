// SPDX-License-Identifier: MIT
/// \file
/// A stack of encoder blocks.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "fovea/layers/encoder_block.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Calls f(i, from, to) for blocks i = 0, 1, ..., from x to y; intermediate tensors use the buffers
/// `hidden` cyclically.
template <class T, class E, class F>
void through_blocks(std::size_t count, const View<const T>& x, const View<T>& y,
                    std::span<Buffer<T>> hidden, E&& executor, F&& f) {
  if (count == 0) return copy_activations<T>(x, y, executor);
  View<const T> from = x;
  for (std::size_t i = 0; i < count; ++i) {
    const View<T> to = i + 1 == count ? y : hidden[i % hidden.size()].resize(y.shape());
    f(i, from, to);
    from = to;
  }
}

}  // namespace detail

template <class Block, class S = typename Block::Scalar>
class EncoderStackDecoder;

/// y = block_n(... block_1(x)), for x and y [B, 1, L, Dm] with dense rows; without blocks y = x.
/// Parameters are called "blocks.0.norm1.scale" and so on. `Block` is any EncoderBlock. Blocks have
/// different layer numbers, starting from that of the training step, so that they drop different
/// elements.
template <class Block>
class EncoderStack : public LayerCalls<EncoderStack<Block>, typename Block::Scalar,
                                       Tokens<typename Block::Scalar>> {
  using T = typename Block::Scalar;

 public:
  std::vector<Block> blocks;  ///< The blocks, all of one width.

  /// State saved for backward, and buffers for both passes.
  struct Saved {
    std::vector<typename Block::Saved> blocks;  ///< of each block
    std::vector<Buffer<T>> hidden;              ///< [B, 1, L, Dm] the outputs of all blocks but the
                                                ///< last
    Buffer<T> d_hidden[2];                      ///< [B, 1, L, Dm] the gradients of two of them
  };

  /// A stack without blocks; they may be appended.
  EncoderStack() = default;
  /// A stack of these blocks.
  explicit EncoderStack(std::vector<Block> given) : blocks(std::move(given)) {}

  /// Lists the blocks.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f("blocks", self.blocks);
  }

  /// Computes y, and saves nothing. Memory, for any number of blocks: that of one block, and two
  /// tensors of y's size.
  /// \throws std::invalid_argument as the blocks; std::bad_alloc
  template <class E = Serial>
  requires(!std::same_as<std::remove_cvref_t<E>, Saved>) void forward(const Tokens<T>& tokens,
                                                                      const View<T>& y,
                                                                      E&& executor = {}) const {
    check_forward("EncoderStack", tokens, tokens.x.width(), y, tokens.x.width());
    auto&& threads = as_executor(executor);
    typename Block::Saved scratch;
    std::array<Buffer<T>, 2> hidden;
    detail::through_blocks<T>(blocks.size(), tokens.x, y, hidden, threads,
                              [&](std::size_t i, const View<const T>& from, const View<T>& to) {
                                blocks[i].forward(tokens.with(from).in_layer(i), to, scratch,
                                                  threads);
                              });
  }

  /// Computes y, and saves what `backward` needs.
  /// \throws std::invalid_argument as the blocks
  /// \throws std::bad_alloc if allocation fails
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& saved, E&& executor = {}) const {
    check_forward("EncoderStack", tokens, tokens.x.width(), y, tokens.x.width());
    auto&& threads = as_executor(executor);
    saved.blocks.resize(blocks.size());
    saved.hidden.resize(blocks.empty() ? 0 : blocks.size() - 1);
    detail::through_blocks<T>(blocks.size(), tokens.x, y, saved.hidden, threads,
                              [&](std::size_t i, const View<const T>& from, const View<T>& to) {
                                blocks[i].forward(tokens.with(from).in_layer(i), to,
                                                  saved.blocks[i], threads);
                              });
  }

  /// Adds to the gradients of the parameters. If given, d_x is written.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor = {}) {
    check_backward("EncoderStack", tokens, tokens.x.width(), d_y, tokens.x.width(), d_x);
    if (saved.blocks.size() != blocks.size()) {
      refuse("EncoderStack", "saved has " + std::to_string(saved.blocks.size()) + " blocks",
             "expected " + std::to_string(blocks.size()) + ", from the forward pass of this stack");
    }
    auto&& threads = as_executor(executor);
    View<const T> d_out = d_y;
    for (std::size_t i = blocks.size(); i-- > 0;) {
      const View<const T> from =
          i == 0 ? View<const T>(tokens.x) : View<const T>(saved.hidden[i - 1].view());
      const View<T> d_from = i == 0 ? d_x : saved.d_hidden[i % 2].resize(d_y.shape());
      blocks[i].backward(tokens.with(from).in_layer(i), saved.blocks[i], d_out, d_from, threads);
      d_out = d_from;
    }
    if (blocks.empty() && !d_x.empty()) detail::copy_activations<T>(d_y, d_x, threads);
  }

  /// A decoder: the same stack for successive tokens.
  /// \throws as the decoders of the blocks
  template <class S = T>
  [[nodiscard]] EncoderStackDecoder<Block, S> decoder(const LayerDecoderShape& shape = {}) const {
    return {*this, shape};
  }
};

/// What `stack.decoder(shape)` returns: the decoder of each block, with the properties of
/// EncoderBlockDecoder. A step needs the memory of one block's step, and two tensors of y's size.
template <class Block, class S>
class EncoderStackDecoder {
  using T = typename Block::Scalar;

 public:
  /// An empty decoder. \throws as the decoders of the blocks
  EncoderStackDecoder(const EncoderStack<Block>& stack, const LayerDecoderShape& shape) {
    blocks_.reserve(stack.blocks.size());
    for (const auto& block : stack.blocks) blocks_.push_back(block.template decoder<S>(shape));
  }

  /// The number of tokens so far.
  [[nodiscard]] Index length() const { return blocks_.empty() ? 0 : blocks_.front().length(); }
  /// Bytes of the operators' decoders.
  [[nodiscard]] Index memory_bytes() const {
    Index bytes = 0;
    for (const auto& block : blocks_) bytes += block.memory_bytes();
    return bytes;
  }

  /// Appends n tokens, and computes y for them.
  /// \param x [B, 1, n, Dm] \param y [B, 1, n, Dm] is written
  /// \throws std::invalid_argument as the blocks; std::bad_alloc
  template <class E = Serial>
  void step(const View<const T>& x, const View<T>& y, E&& executor = {}) {
    check_forward("EncoderStack", x, x.width(), y, x.width());
    auto&& threads = as_executor(executor);
    [[maybe_unused]] const auto awake = stay_awake(threads);
    // All blocks must have the same tokens.
    const detail::OnError forget([this, before = length()] {
      if (length() != before) clear();
    });
    detail::through_blocks<T>(blocks_.size(), x, y, hidden_, threads,
                              [&](std::size_t i, const View<const T>& from, const View<T>& to) {
                                blocks_[i].step(from, to, scratch_, threads);
                              });
  }

  /// Drops the tokens from position `length` on. \throws as the decoders of the blocks
  void rollback(Index length) {
    for (auto& block : blocks_) block.rollback(length);
  }
  /// Drops all tokens and keeps the memory.
  void clear() noexcept {
    for (auto& block : blocks_) block.clear();
  }
  /// Allocates memory for that many tokens in total. \throws as the decoders of the blocks
  void reserve(Index tokens) {
    for (auto& block : blocks_) block.reserve(tokens);
  }

  /// An independent copy, for the same stack. \throws std::bad_alloc
  [[nodiscard]] EncoderStackDecoder fork() const {
    EncoderStackDecoder other;
    other.blocks_.reserve(blocks_.size());
    for (const auto& block : blocks_) other.blocks_.push_back(block.fork());
    return other;
  }

 private:
  EncoderStackDecoder() = default;

  std::vector<EncoderBlockDecoder<Block, S>> blocks_;
  typename EncoderBlockDecoder<Block, S>::Scratch scratch_;
  std::array<Buffer<T>, 2> hidden_;
};

FOVEA_NAMESPACE_END
