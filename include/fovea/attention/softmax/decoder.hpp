// SPDX-License-Identifier: MIT
/// \file
/// Incremental softmax attention: a cache of keys and values, and the attention of the last
/// positions over it.
#pragma once

#include "fovea/attention/call/step_calls.hpp"
#include "fovea/attention/softmax/decoder_core.hpp"

FOVEA_NAMESPACE_BEGIN

/// Result of `op.decoder<T>(shape)` for a softmax operator `Op`: a growing sequence of tokens, and
/// the attention of its last positions.
/// `step` gives, bit for bit, what `op.forward` gives for the same queries and all keys so far.
/// That holds however the tokens were split into appends, and for any number of threads. Only
/// visible keys are read. Parts of the pattern that name positions beyond the tokens so far take
/// effect when those arrive.
/// Memory: at most twice the tokens. With a window of `left` keys it is about 2 (left + right +
/// min(left, 512)) tokens, however long the sequence, plus the summary columns if heads see them
/// (fixed attention). A step with more new tokens than fit the window makes a temporary copy.
/// Not thread-safe. Errors are std::invalid_argument or std::bad_alloc, and leave the decoder and
/// the outputs unchanged.
template <class Op, class T>
class Decoder : public AppendCalls<Decoder<Op, T>, KeyValueTokens<T>>,
                public StepCalls<Decoder<Op, T>, T, SoftmaxInputs<T>, SoftmaxSaved<T>> {
 public:
  /// An empty decoder.
  /// \throws std::invalid_argument if the options or the sizes do not allow a decoder;
  /// std::bad_alloc for shape.reserve
  Decoder(const Op& op, const DecoderShape& shape) : op_(op), core_(op_, shape) {}

  /// The number of tokens so far.
  [[nodiscard]] Index length() const { return core_.length(); }

  /// Bytes of memory for keys, values and scratch.
  [[nodiscard]] Index memory_bytes() const { return core_.memory_bytes(); }

  /// Drops the tokens from position `length` on. With a window, at least the last `rollback_tokens`
  /// tokens can be dropped, or all.
  /// \throws std::invalid_argument if `length` is not one of 0 to length(), or keys that the window
  /// needs have been dropped
  void rollback(Index length) { core_.rollback(Op::name(), length); }

  /// Drops all tokens and keeps the memory.
  void clear() noexcept { core_.clear(); }

  /// Allocates memory for that many tokens in all.
  /// \throws std::invalid_argument if `tokens` is negative; std::bad_alloc
  void reserve(Index tokens) { core_.reserve(Op::name(), tokens); }

  /// The stored tokens: all, or with a window the last ones.
  /// \pre no head sees summary columns
  [[nodiscard]] CachedTokens<T> held() const { return core_.held(); }

  /// Replaces the tokens by these.
  /// \throws std::bad_alloc, with nothing changed
  void restart(const CachedTokens<T>& held) { core_.restart(held); }

  /// An independent copy of the decoder, with memory for just its tokens.
  /// \throws std::bad_alloc
  [[nodiscard]] Decoder fork() const { return Decoder(op_, core_.fork()); }

 private:
  friend class AppendCalls<Decoder<Op, T>, KeyValueTokens<T>>;
  friend class StepCalls<Decoder<Op, T>, T, SoftmaxInputs<T>, SoftmaxSaved<T>>;
  template <class U>
  friend class ScorePasses;

  Decoder(const Op& op, SoftmaxDecoderCore<T> core) : op_(op), core_(std::move(core)) {}

  /// Appends n tokens (AppendCalls). Cost: O(D + Dv) for each token and key head, on average.
  void append_tokens(const KeyValueTokens<T>& tokens) { core_.append(Op::name(), tokens); }

  /// One step (StepCalls).
  void run_step(const SoftmaxInputs<T>& inputs, const View<T>& out, const SoftmaxSaved<T>& saved,
                const ExecutorRef& executor) {
    core_.step(op_, op_.template score_modifier<Compute<T>, false>(), inputs, out, saved, executor);
  }

  Op op_;
  SoftmaxDecoderCore<T> core_;
};

FOVEA_NAMESPACE_END
