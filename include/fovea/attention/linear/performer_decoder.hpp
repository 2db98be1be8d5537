// SPDX-License-Identifier: MIT
/// \file
/// Incremental Performer attention: the state of the sums of each key head.
#pragma once

#include <utility>

#include "fovea/attention/call/step_calls.hpp"
#include "fovea/attention/linear/performer_decoder_core.hpp"

FOVEA_NAMESPACE_BEGIN

/// Result of `op.decoder<T>(shape)` for a causal PerformerAttention: a growing sequence of tokens,
/// and the attention of its last positions. The projection is passed to every step, and must be the
/// same for all of them.
/// `step` gives, bit for bit, what `op.forward` gives for the same queries and all keys so far,
/// however the tokens were split into appends, and for any number of threads.
/// Memory is constant: for each key head twice about 4 R Dv numbers and a chunk of tokens.
/// Not thread-safe. Errors are std::invalid_argument or std::bad_alloc, and leave the decoder and
/// the outputs unchanged. If a step's executor throws anything else midway, all tokens are
/// forgotten.
template <class Op, class T>
class PerformerDecoder
    : public AppendCalls<PerformerDecoder<Op, T>, PerformerTokens<T>>,
      public StepCalls<PerformerDecoder<Op, T>, T, InputsOf<Op, T>, SavedOf<Op, T>> {
 public:
  /// An empty decoder.
  /// \throws std::invalid_argument if the options or the sizes do not allow a decoder;
  /// std::bad_alloc
  PerformerDecoder(const Op& op, const PerformerDecoderShape& shape)
      : core_(op.settings(), shape) {}

  /// The number of tokens so far.
  [[nodiscard]] Index length() const { return core_.length(); }

  /// Bytes of memory for the states and the scratch.
  [[nodiscard]] Index memory_bytes() const { return core_.memory_bytes(); }

  /// Forgets the tokens from position `length` on: either all tokens, or some of the open chunk. To
  /// go back further, keep a `fork`.
  /// \throws std::invalid_argument if `length` is before the open chunk and not 0, or beyond the
  /// tokens
  void rollback(Index length) { core_.rollback(length); }

  /// Drops all tokens and keeps the memory.
  void clear() noexcept { core_.clear(); }

  /// Only checks that `tokens` is not negative: the memory is constant.
  void reserve(Index tokens) { core_.reserve(tokens); }

  /// An independent copy of the decoder.
  /// \throws std::bad_alloc
  [[nodiscard]] PerformerDecoder fork() const { return PerformerDecoder(core_.fork()); }

 private:
  friend class AppendCalls<PerformerDecoder<Op, T>, PerformerTokens<T>>;
  friend class StepCalls<PerformerDecoder<Op, T>, T, InputsOf<Op, T>, SavedOf<Op, T>>;

  explicit PerformerDecoder(PerformerDecoderCore<T> core) : core_(std::move(core)) {}

  /// Appends n tokens (AppendCalls). Cost: O(R (D + Dv)) flops for each token and key head.
  void append_tokens(const PerformerTokens<T>& tokens) { core_.append(tokens); }

  /// One step (StepCalls), with at most one row more than new tokens.
  void run_step(const InputsOf<Op, T>& inputs, const View<T>& out, const SavedOf<Op, T>& /*saved*/,
                const ExecutorRef& executor) {
    core_.step(inputs, out, executor);
  }

  PerformerDecoderCore<T> core_;
};

FOVEA_NAMESPACE_END
