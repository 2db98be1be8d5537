// SPDX-License-Identifier: MIT
/// \file
/// The decoder of EncoderBlock, for one or more tokens per step.
#pragma once

#include <utility>

#include "fovea/core/on_error.hpp"
#include "fovea/layers/layer_check.hpp"
#include "fovea/layers/multi_head_decoder.hpp"

FOVEA_NAMESPACE_BEGIN

/// What `block.decoder(shape)` returns: a growing sequence of tokens. If the operator is causal,
/// `step` computes, bit for bit, the rows that `block.forward` computes for the same tokens,
/// however they are divided into steps and for any number of threads.
///
/// It reads the block's weights at each step, so the block must outlive it and must not be moved.
/// It must not be called from several threads at once. Refused calls leave it unchanged; if memory
/// runs out in the middle of a step, all tokens are dropped.
/// \tparam S the type of the cache, as in the attention layer's decoder
template <class Block, class S = typename Block::Scalar>
class EncoderBlockDecoder {
  using T = typename Block::Scalar;
  using AttentionLayer = typename Block::Attention;
  using AttentionDecoder = decltype(std::declval<const AttentionLayer&>().template decoder<S>(
      std::declval<const LayerDecoderShape&>()));
  static_assert(
      requires(const AttentionLayer layer) { layer.template decoder<S>({}); },
      "fovea: a block has a decoder only if its attention layer has one, for example MultiHead "
      "with a causal operator");

 public:
  /// Scratch memory of a step. Decoders that are not used at the same time may share one.
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
  /// \throws std::invalid_argument if a shape or layout is wrong; std::bad_alloc
  template <class E = Serial>
  void step(const View<const T>& x, const View<T>& y, E&& executor = {}) {
    step(x, y, scratch_, executor);
  }

  /// The same with separate scratch memory.
  template <class E>
  void step(const View<const T>& x, const View<T>& y, Scratch& scratch, E&& executor) {
    check_forward("EncoderBlock", x, block_->width(), y, block_->width());
    [[maybe_unused]] const auto awake = stay_awake(executor);
    // All parts of a block must have the same tokens.
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

  /// Drops the tokens from position `length` on. \throws as the operator's decoder
  void rollback(Index length) { attention_.rollback(length); }
  /// Drops all tokens and keeps the memory.
  void clear() noexcept { attention_.clear(); }
  /// Allocates memory for that many tokens in total. \throws as the operator's decoder
  void reserve(Index tokens) { attention_.reserve(tokens); }

  /// An independent copy, for the same block. \throws std::bad_alloc
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
