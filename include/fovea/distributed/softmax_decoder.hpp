// SPDX-License-Identifier: MIT
/// \file
/// Incremental softmax attention with a sharded cache of keys and values.
#pragma once

#include <concepts>
#include <utility>

#include "fovea/distributed/softmax/decoder_core.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// A growing sequence of tokens with sharded keys and values, and the attention of its last
/// positions. Every rank makes the same calls with the same queries and tokens, stores a part of
/// the tokens, and gets all outputs. `step` is bit-identical to `op.decoder`, and so to
/// `op.forward`, for any number of ranks and threads.
///
/// Positions are assigned to ranks round-robin, in blocks of `block()`: kKeySegment times a
/// multiple of the steps of the operator's runs, for steps of at most kMostStep. So one rank stores
/// the keys of a segment and computes its running softmax, which is sent to all ranks; every rank
/// merges these in key order. Keys are sent only if a row sees them in other steps, or in the band
/// form of a window of at most kBandKeys: they are sent to all ranks, and every rank computes with
/// them.
///
/// It is for operators with a head of unbounded receptive field (full, causal, strided, BigBird,
/// modified, lists of patterns). A bounded window is small, and linear, FMM and delta-rule
/// attention have a state of constant size: their `op.decoder` needs no sharding.
///
/// Cost of a step: on each rank the segments that it keeps, 2 (D + Dv) flops for each pair; three
/// collective checks; and, sent to each other rank, Dv + 3 numbers (each of the four parts rounded
/// up to whole registers) for each row, head and segment. Rows always use the decode path, up to
/// kMostRows of the heads that share keys at a time, with an exchange for each such group of rows:
/// a long prompt is cheaper with `distributed::forward` over the rows of `layout`, then
/// `append_own`. Memory: at most twice the rank's tokens, which are its share plus at most a block;
/// and for a step twice the running softmaxes of all segments, and the keys that are sent.
///
/// It is not thread-safe. If one rank throws, all throw the same message, prefixed with its number.
/// Calls that differ in sizes between ranks are rejected; whether values are equal is not checked.
/// Errors are std::invalid_argument or std::bad_alloc, and leave the decoder and the outputs
/// unchanged. If a user's executor throws while computing, the decoder is unchanged and the outputs
/// are unspecified. std::runtime_error is thrown if MPI fails.
template <class Op, class T>
requires PatternAttention<Op, T>
class SoftmaxDecoder {
 public:
  /// Segments of keys seen in steps of at most this are on one rank each, if the steps' least
  /// common multiple is at most this, too.
  static constexpr Index kMostStep = ShardedDecoderCore<T>::kMostStep;

  /// Constructs an empty decoder. Collective.
  /// \param ranks must outlive this object
  /// \throws std::invalid_argument if the options or the sizes do not allow a decoder, if all heads
  /// have bounded windows, or if sizes differ between ranks; std::bad_alloc for shape.reserve
  SoftmaxDecoder(const Op& op, const DecoderShape& shape, const Communicator& ranks)
      : op_(op), core_(op_, detail::options_text(op_), shape, ranks) {}

  /// The number of tokens so far.
  [[nodiscard]] Index length() const { return core_.length(); }
  /// The number of positions of a block.
  [[nodiscard]] Index block() const { return core_.block(); }
  /// The layout of that many tokens.
  [[nodiscard]] RowLayout layout(Index tokens) const { return core_.layout(tokens); }
  /// Bytes of memory of this rank for keys, values and scratch.
  [[nodiscard]] Index memory_bytes() const { return core_.memory_bytes(); }

  /// Appends n tokens; each rank stores its own. Cost: two collective checks, and O(D + Dv) per
  /// stored token and key head, on average.
  /// \param tokens k [B, Hk, n, D] and v [B, Hk, n, Dv], the same on all ranks
  /// \throws std::invalid_argument if their shapes are not those of the decoder; std::bad_alloc
  void append(const KeyValueTokens<T>& tokens) { core_.append(tokens); }
  /// Appends n tokens: k [B, Hk, n, D] and v [B, Hk, n, Dv].
  void append(const View<const T>& k, const View<const T>& v) { append({k, v}); }

  /// Appends `count` tokens; each rank passes those that it stores. \param tokens the rank's, in
  /// ascending order: those at positions length() + n that `layout(length() + count)` assigns to it
  /// \throws as append
  void append_own(const KeyValueTokens<T>& tokens, Index count) { core_.append_own(tokens, count); }

  /// Removes the tokens from position `length` on. Cost: a collective check.
  /// \throws std::invalid_argument if `length` is not in [0, length()]
  void rollback(Index length) { core_.rollback(length); }
  /// Removes all tokens and keeps the memory. All ranks call it, without communication.
  void clear() noexcept { core_.clear(); }
  /// Allocates this rank's memory for that many tokens in total. Cost: a collective check.
  /// \throws std::invalid_argument if `tokens` is negative; std::bad_alloc
  void reserve(Index tokens) { core_.reserve(tokens); }

  /// Computes attention for the last n positions. If the inputs have k and v, these are appended
  /// first.
  /// \param inputs q [B, Hq, n, D], and the rest as in `forward` of the operator, where Nk is the
  /// length after appending; all equal on all ranks
  /// \param out [B, Hq, n, Dv], fully written on all ranks
  /// \param saved lse [B, Hq, n, 1], written if it has a tensor
  /// \param executor runs the segments of this rank, as in `forward` of the operator
  /// \returns this rank's communication statistics
  template <class Out, class E = Serial>
  CommStats step(const SoftmaxInputs<T>& inputs, Out&& out, const SoftmaxSaved<T>& saved,
                 E&& executor = {}) {
    return core_.step(op_, op_.template score_modifier<Compute<T>, false>(),
                      {inputs, View<T>(out), saved}, detail::CollectiveCall(op_, executor));
  }

  /// The same on the calling thread, without saved state.
  template <class Out>
  CommStats step(const SoftmaxInputs<T>& inputs, Out&& out) {
    return step(inputs, View<T>(out), SoftmaxSaved<T>{});
  }
  /// The same, without saved state.
  template <class Out, class E>
  requires(!std::convertible_to<E, SoftmaxSaved<T>>) CommStats
      step(const SoftmaxInputs<T>& inputs, Out&& out, E&& executor) {
    return step(inputs, View<T>(out), SoftmaxSaved<T>{}, executor);
  }

 private:
  Op op_;
  ShardedDecoderCore<T> core_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
