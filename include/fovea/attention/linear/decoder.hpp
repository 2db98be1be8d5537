// SPDX-License-Identifier: MIT
/// \file
/// Incremental attention with a far field: one state for each key head and term, and a ring of
/// tokens for the near field.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "fovea/attention/call/step_calls.hpp"
#include "fovea/attention/linear/decoder_core.hpp"

FOVEA_NAMESPACE_BEGIN

/// n new tokens of a decoder with a delta rule.
template <class T>
struct DeltaTokens {
  ViewMember<const T> k;              ///< keys, [B, Hk, n, D]
  ViewMember<const T> v;              ///< values, [B, Hk, n, Dv]
  ViewMember<const Compute<T>> beta;  ///< rates, [B, Hk, n, 1], finite and at least 0
};

/// Result of `op.decoder<T>(shape)` for a causal operator `Op` with a far field: a growing sequence
/// of tokens, and the attention of its last positions.
/// `step` gives, bit for bit, what `op.forward` gives for the same queries and all keys so far.
/// That holds however the tokens were split into appends, and for any number of threads.
/// Memory is constant: for each key head a state of about 4 D Dv numbers for each map (2 D Dv for
/// the delta rule; for random features see PerformerAttention) and a chunk of tokens, and the ring
/// of the near field. Sums stay accurate at any length, since complete segments are added to an
/// accumulator of twice the width.
/// Not thread-safe. Errors are std::invalid_argument or std::bad_alloc, and leave the decoder and
/// the outputs unchanged. If a step's executor throws anything else midway, all tokens are dropped.
template <class Op, class T>
class LinearDecoder : public AppendCalls<LinearDecoder<Op, T>, typename Op::template Tokens<T>>,
                      public StepCalls<LinearDecoder<Op, T>, T, InputsOf<Op, T>, SavedOf<Op, T>> {
  using Core = typename Op::template Passes<T>::DecoderCore;
  static constexpr bool kIsSaved = requires(const Core& core) { core.save(); };

 public:
  /// An empty decoder.
  /// \throws std::invalid_argument if the options or the sizes do not allow a decoder;
  /// std::bad_alloc
  LinearDecoder(const Op& op, const typename Op::DecoderShape& shape)
      : core_(op.template settings<Compute<T>>(), shape) {}

  /// The number of tokens so far.
  [[nodiscard]] Index length() const { return core_.length(); }

  /// Bytes of memory for the states, the ring and the scratch.
  [[nodiscard]] Index memory_bytes() const { return core_.memory_bytes(); }

  /// Forgets the tokens from position `length` on: either all tokens, or some of the open chunk. To
  /// go back further, keep a `fork` or a `save`.
  /// \throws std::invalid_argument if `length` is before the open chunk and not 0, or beyond the
  /// tokens
  void rollback(Index length) { core_.rollback(length); }

  /// Drops all tokens and keeps the memory.
  void clear() noexcept { core_.clear(); }

  /// Only checks that `tokens` is not negative: the memory is constant.
  void reserve(Index tokens) { core_.reserve(tokens); }

  /// An independent copy of the decoder.
  /// \throws std::bad_alloc
  [[nodiscard]] LinearDecoder fork() const { return LinearDecoder(core_.fork()); }

  /// The state as bytes, for `restore` of a decoder with the same operator, sizes and scalar, in a
  /// process with the same byte order and library version. (PerformerAttention has neither.)
  [[nodiscard]] std::vector<std::byte> save() const requires kIsSaved { return core_.save(); }

  /// Replaces the tokens with those of a saved decoder.
  /// \throws std::invalid_argument if the bytes are not from such a decoder; std::bad_alloc
  void restore(std::span<const std::byte> bytes) requires kIsSaved { core_.restore(bytes); }

 private:
  friend class AppendCalls<LinearDecoder<Op, T>, typename Op::template Tokens<T>>;
  friend class StepCalls<LinearDecoder<Op, T>, T, InputsOf<Op, T>, SavedOf<Op, T>>;

  explicit LinearDecoder(Core core) : core_(std::move(core)) {}

  /// Appends n tokens (AppendCalls). Cost: O(D Dv) flops for each token, key head and term.
  void append_tokens(const typename Op::template Tokens<T>& tokens) {
    typename Op::template Passes<T>::Inputs inputs;
    inputs.k = tokens.k;
    inputs.v = tokens.v;
    if constexpr (requires { tokens.beta; }) inputs.beta = tokens.beta;
    if constexpr (requires { tokens.projection; }) inputs.projection = tokens.projection;
    core_.append(inputs);
  }

  /// One step (StepCalls), with at most one row more than new tokens.
  void run_step(const InputsOf<Op, T>& inputs, const View<T>& out, const SavedOf<Op, T>& saved,
                const ExecutorRef& executor) {
    core_.step(Op::template family_inputs<T>(inputs), out, saved, executor);
  }

  Core core_;
};

FOVEA_NAMESPACE_END
