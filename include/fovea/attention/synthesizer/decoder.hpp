// SPDX-License-Identifier: MIT
/// \file
/// The decoder of every form of the Synthesizer: it keeps the softmax's keys and values.
#pragma once

#include <utility>

#include "fovea/attention/softmax/decoder.hpp"
#include "fovea/attention/synthesizer/logits.hpp"

FOVEA_NAMESPACE_BEGIN

/// What `op.decoder<T>(shape)` returns for a form `Op` of the Synthesizer: a growing sequence of
/// tokens, and the attention of its last positions, as many as `out` has rows. `step` computes, bit
/// for bit, what `op.forward` computes for the last rows of all tokens so far, if weights by
/// position (R, R1 and R2, W2 and b2) are the same: each call gets them completely, and a key's
/// part is read when its token is appended. It must not be called from several threads at once.
/// Errors are std::invalid_argument or std::bad_alloc, and leave the decoder and the outputs
/// unchanged. Memory: at most twice that of the tokens and the softmax's keys and values.
template <class Op, class T>
class SynthesizerDecoder
    : public AppendCalls<SynthesizerDecoder<Op, T>, typename Op::template Tokens<T>>,
      public StepCalls<SynthesizerDecoder<Op, T>, T, InputsOf<Op, T>, SavedOf<Op, T>> {
  using Softmax = detail::SynthesizedSoftmax<Op>;

 public:
  /// An empty decoder.
  /// \throws std::invalid_argument if the sizes do not allow a decoder; std::bad_alloc for
  /// shape.reserve
  SynthesizerDecoder(const Op& op, const DecoderShape& shape);

  /// The number of tokens so far.
  [[nodiscard]] Index length() const { return inner_.length(); }
  /// Bytes of memory for tokens and scratch.
  [[nodiscard]] Index memory_bytes() const;

  /// Drops the tokens from position `length` on.
  /// \throws std::invalid_argument if `length` is not in 0 to length()
  void rollback(Index length) { inner_.rollback(length); }
  /// Drops all tokens and keeps the memory.
  void clear() noexcept { inner_.clear(); }
  /// Allocates memory for that many tokens in total.
  /// \throws std::invalid_argument if `tokens` is negative; std::bad_alloc
  void reserve(Index tokens) { inner_.reserve(tokens); }

  /// An independent copy of the decoder, with memory for just its tokens.
  /// \throws std::bad_alloc
  [[nodiscard]] SynthesizerDecoder fork() const {
    return SynthesizerDecoder(op_, shape_, inner_.fork());
  }

 private:
  friend class AppendCalls<SynthesizerDecoder<Op, T>, typename Op::template Tokens<T>>;
  friend class StepCalls<SynthesizerDecoder<Op, T>, T, InputsOf<Op, T>, SavedOf<Op, T>>;

  /// Appends n tokens (AppendCalls), as many as `tokens.v` has rows.
  void append_tokens(const typename Op::template Tokens<T>& tokens);

  SynthesizerDecoder(const Op& op, const DecoderShape& shape, Decoder<Softmax, T> inner)
      : op_(op), shape_(shape), inner_(std::move(inner)) {}

  /// One step (StepCalls). If the inputs have v, these tokens are appended first.
  void run_step(const InputsOf<Op, T>& inputs, const View<T>& out, const SavedOf<Op, T>& saved,
                const ExecutorRef& executor);

  Op op_;
  DecoderShape shape_;
  Decoder<Softmax, T> inner_;
  detail::SynthesizerLogits<Op, T> logits_;  // with scratch memory only
};

FOVEA_NAMESPACE_END
