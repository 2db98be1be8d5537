// SPDX-License-Identifier: MIT
/// \file
/// The decoder of every form of the Synthesizer: it keeps what the softmax has as keys, and the
/// values.
#pragma once

#include <utility>

#include "fovea/attention/softmax/decoder.hpp"
#include "fovea/attention/synthesizer/logits.hpp"

FOVEA_NAMESPACE_BEGIN

/// What `op.decoder<T>(shape)` returns for a form `Op` of the Synthesizer: a growing sequence of
/// tokens, and the attention of its last positions, whose rows are as many as those of `out`.
/// `step` gives, bit for bit, what `op.forward` gives for the last rows of all tokens so far, if
/// weights by position (R, R1 and R2, W2 and b2) are the same: each call is given them whole, and
/// what belongs to a key is read with the token that brings it. It must not be called from several
/// threads at once. Errors are std::invalid_argument or std::bad_alloc, and leave the decoder and
/// the outputs as they were.
/// Memory: at most twice the tokens, values and what the softmax has as keys.
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

  /// Forgets the tokens from position `length` on.
  /// \throws std::invalid_argument if `length` is not one of 0 to length()
  void rollback(Index length) { inner_.rollback(length); }
  /// Forgets all tokens and keeps the memory.
  void clear() noexcept { inner_.clear(); }
  /// Takes memory for that many tokens in all.
  /// \throws std::invalid_argument if `tokens` is negative; std::bad_alloc
  void reserve(Index tokens) { inner_.reserve(tokens); }

  /// A copy of the decoder that is independent of it, with memory for just its tokens.
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
  detail::SynthesizerLogits<Op, T> logits_;  // what it keeps is scratch
};

FOVEA_NAMESPACE_END
