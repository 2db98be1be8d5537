// SPDX-License-Identifier: MIT
/// \file
/// The decoder of MultiHead, for one or more tokens per step.
#pragma once

#include <utility>

#include "fovea/layers/head_attention.hpp"
#include "fovea/layers/rotary.hpp"

FOVEA_NAMESPACE_BEGIN

template <class Op, class T, class W>
class MultiHead;

/// The sizes of a decoder that the layer does not determine.
struct LayerDecoderShape {
  Index batch = 1;            ///< B, the number of sequences, which are equally long
  Index reserve = 0;          ///< number of tokens to allocate memory for
  Index rollback_tokens = 0;  ///< with a window, rollback can drop at least this many last tokens
};

/// What `layer.decoder(shape)` returns for MultiHead of an operator that has a decoder: a growing
/// sequence of tokens. If the operator is causal, `step` computes, bit for bit, the rows that
/// `layer.forward` computes for the same tokens, however they are divided into steps and for any
/// number of threads.
///
/// If S is a 16-bit type, queries, keys and values are rounded to it and the cache needs half of
/// the memory; results then differ from `forward`, but still do not depend on the division into
/// steps. The operator must support tensors of S, as softmax over patterns does.
///
/// There is no dropout. It reads the layer's weights at each step, so the layer must outlive it and
/// must not be moved. Its memory is that of the operator's decoder, and (3 H + 2 Hk) D numbers for
/// each token of a step. It must not be called from several threads at once. Errors are
/// std::invalid_argument or std::bad_alloc, and leave it unchanged.
/// \tparam S the type of the cache: T, or a 16-bit type
template <class Op, class T = float, class W = T, class S = T>
class MultiHeadDecoder {
  static_assert(IncrementalAttention<Op, S>,
                "fovea: a layer has a decoder only if its operator has one for this scalar type, "
                "as causal operators do");

 public:
  /// Scratch memory of a step. Decoders that are not used at the same time may share one.
  struct Scratch {
    Buffer<T> projected;                         ///< [B, 1, n, (H + 2 Hk) D] q, k and v
    typename HeadAttention<Op, T>::Saved heads;  ///< of the operator
    RotaryAngles<T> angles;                      ///< of rotary positions, if there are any
    StoredHeads<S> stored;                       ///< of a 16-bit cache
  };

  /// An empty decoder. \throws std::invalid_argument as the operator's decoder; std::bad_alloc
  MultiHeadDecoder(const MultiHead<Op, T, W>& layer, const LayerDecoderShape& shape)
      : layer_(&layer), batch_(shape.batch), decoder_(decoder_of(layer, shape)) {}

  /// The number of tokens so far.
  [[nodiscard]] Index length() const { return decoder_.length(); }
  /// Bytes of the operator's decoder.
  [[nodiscard]] Index memory_bytes() const { return decoder_.memory_bytes(); }

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
    check_forward("MultiHead", x, layer_->sizes().width, y, layer_->sizes().width);
    detail::check_extent("MultiHead", "x", x.shape(), 0, batch_, "the batch of the decoder");
    [[maybe_unused]] const auto awake = stay_awake(executor);
    const View<T> projected = scratch.projected.resize(batch_, x.rows(), layer_->columns());
    layer_->projection_.forward(x, projected, executor);
    layer_->rotary_.turn(layer_->queries_and_keys(projected),
                         {.first = length(), .angles = &scratch.angles}, executor);
    const auto qkv = layer_->parts(View<const T>(projected));
    if constexpr (std::same_as<S, T>) {
      layer_->out_.forward(layer_->attention_.step(decoder_, qkv, {x}, scratch.heads, executor), y,
                           executor);
    } else {
      layer_->out_.forward(layer_->attention_.step_stored(decoder_, qkv, {x}, scratch.heads,
                                                          scratch.stored, executor),
                           y, executor);
    }
  }

  /// Drops the tokens from position `length` on. \throws as the operator's decoder
  void rollback(Index length) { decoder_.rollback(length); }
  /// Drops all tokens and keeps the memory.
  void clear() noexcept { decoder_.clear(); }
  /// Allocates memory for that many tokens in total. \throws std::invalid_argument if it is
  /// negative; std::bad_alloc
  void reserve(Index tokens) { decoder_.reserve(tokens); }

  /// An independent copy, for the same layer. \throws std::bad_alloc
  [[nodiscard]] MultiHeadDecoder fork() const {
    return MultiHeadDecoder(*layer_, batch_, decoder_.fork());
  }

 private:
  using OpDecoder = decltype(std::declval<const Op&>().template decoder<S>(
      std::declval<const typename Op::DecoderShape&>()));

  MultiHeadDecoder(const MultiHead<Op, T, W>& layer, Index batch, OpDecoder decoder)
      : layer_(&layer), batch_(batch), decoder_(std::move(decoder)) {}

  static OpDecoder decoder_of(const MultiHead<Op, T, W>& layer, const LayerDecoderShape& shape) {
    const HeadSizes& sizes = layer.sizes();
    layer.attention_.learned.check_decoder();
    typename Op::DecoderShape of_op;
    of_op.batch = shape.batch;
    of_op.query_heads = sizes.heads;
    of_op.key_heads = sizes.key_heads;
    of_op.width = of_op.value_width = sizes.head_width;
    of_op.reserve = shape.reserve;
    of_op.rollback_tokens = shape.rollback_tokens;
    if constexpr (requires { of_op.sketch_width; }) of_op.sketch_width = sizes.sketch_width;
    if constexpr (requires { of_op.features; }) of_op.features = sizes.features;
    return layer.attention_.op_for({}).template decoder<S>(of_op);
  }

  const MultiHead<Op, T, W>* layer_;
  Index batch_;
  OpDecoder decoder_;
  Scratch scratch_;
};

FOVEA_NAMESPACE_END
