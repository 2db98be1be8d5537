// SPDX-License-Identifier: MIT
/// \file
/// The decoder of EncoderBlock: its tokens come one after the other, or some at a time.
#pragma once

#include <utility>

#include "fovea/core/on_error.hpp"
#include "fovea/layers/layer_check.hpp"
#include "fovea/layers/multi_head_decoder.hpp"

FOVEA_NAMESPACE_BEGIN

/// What `block.decoder(shape)` returns: a growing sequence of tokens. `step` gives, bit for bit,
/// the rows that `block.forward` gives for the same tokens in all tokens so far, if the operator is
/// causal; that holds whatever pieces they come in, and for any number of threads.
///
/// It reads the block's weights at each step, so the block must outlive it and stay where it is. It
/// must not be called from several threads at once. What is refused leaves it as it was; if memory
/// runs out in the middle of a step, all tokens are forgotten.
/// \tparam S the type of the cache, as the attention layer's decoder has it
template <class Block, class S = typename Block::Scalar>
class EncoderBlockDecoder {
  using T = typename Block::Scalar;
  using AttentionLayer = typename Block::Attention;
  using AttentionDecoder = decltype(std::declval<const AttentionLayer&>().template decoder<S>(
      std::declval<const LayerDecoderShape&>()));
  static_assert(
      requires(const AttentionLayer layer) { layer.template decoder<S>({}); },
      "fovea: a block has a decoder if its attention layer has one, as MultiHead of a causal "
      "operator has");

 public:
  /// What a step computes on its way. Decoders that take turns may share one.
  struct Scratch {
    typename Block::Saved block;                   ///< of the block
    typename AttentionDecoder::Scratch attention;  ///< of the attention layer's decoder
  };

  /// An empty decoder. \throws as the attention layer's decoder
  EncoderBlockDecoder(const Block& block, const LayerDecoderShape& shape)
      : block_(&block), attention_(block.attention.template decoder<S>(shape)) {}

  /// The number of tokens so far.
  [[nodiscard]] Index length() const { return attention_.length(); }
  /// Bytes of the operator's decoder.
  [[nodiscard]] Index memory_bytes() const { return attention_.memory_bytes(); }

  /// Appends n tokens, and computes y for them.
  /// \param x [B, 1, n, Dm] \param y [B, 1, n, Dm] is written
  /// \throws std::invalid_argument with a message that names tensor, dimension, expected and got;
  /// std::bad_alloc
  template <class E = Serial>
  void step(const View<const T>& x, const View<T>& y, E&& executor = {}) {
    step(x, y, scratch_, executor);
  }

  /// The same with scratch memory that is kept elsewhere.
  template <class E>
  void step(const View<const T>& x, const View<T>& y, Scratch& scratch, E&& executor) {
    check_forward("EncoderBlock", x, block_->width(), y, block_->width());
    [[maybe_unused]] const auto awake = stay_awake(executor);
    // The parts of a block must not have different tokens.
    const detail::OnError forget([this, before = length()] {
      if (length() != before) clear();
    });
    block_->run(
        x, y, scratch.block,
        [&](const View<const T>& normal, const View<T>& part, auto&& threads) {
          attention_.step(normal, part, scratch.attention, threads);
        },
        as_executor(executor));
  }

  /// Forgets the tokens from position `length` on. \throws as the operator's decoder
  void rollback(Index length) { attention_.rollback(length); }
  /// Forgets all tokens and keeps the memory.
  void clear() noexcept { attention_.clear(); }
  /// Takes memory for that many tokens in all. \throws as the operator's decoder
  void reserve(Index tokens) { attention_.reserve(tokens); }

  /// A copy that is independent of this, of the same block. \throws std::bad_alloc
  [[nodiscard]] EncoderBlockDecoder fork() const {
    return EncoderBlockDecoder(*block_, attention_.fork());
  }

 private:
  EncoderBlockDecoder(const Block& block, AttentionDecoder attention)
      : block_(&block), attention_(std::move(attention)) {}

  const Block* block_;
  AttentionDecoder attention_;
  Scratch scratch_;
};

FOVEA_NAMESPACE_END
