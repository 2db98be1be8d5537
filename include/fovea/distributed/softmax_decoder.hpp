// SPDX-License-Identifier: MIT
/// \file
/// Incremental softmax attention whose cache of keys and values is spread over ranks.
#pragma once

#include <concepts>
#include <utility>

#include "fovea/distributed/softmax/decoder_core.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// A growing sequence of tokens whose keys and values are spread over ranks, and the attention of
/// its last positions. Every rank makes the same calls with the same queries and tokens, keeps a
/// part of the tokens, and gets all of the outputs. `step` gives the bits of `op.decoder`, and so
/// those of `op.forward`, for any number of ranks and threads.
///
/// Positions are dealt to the ranks in turn, in blocks of `block()`: kKeySegment times a multiple
/// of the steps of the operator's runs, as far as these are at most kMostStep. So the keys of a
/// segment lie on one rank, which computes its running softmax. These go to all ranks, and every
/// rank merges them in the order of the keys. Keys travel only if a row sees them in other steps,
/// or in the band form of a window of at most kBandKeys: they go to all ranks, and every rank
/// computes with them.
///
/// It is for operators with a head that looks back without an end (full, causal, strided, BigBird,
/// modified, lists of patterns). What a bounded window sees is small, and linear, FMM and
/// delta-rule attention have a state of constant size: their `op.decoder` does without ranks.
///
/// Cost of a step: on each rank the segments that it keeps, 2 (D + Dv) flops for each pair; three
/// agreements; and, sent to each other rank, Dv + 3 numbers (each of the four parts rounded up to
/// whole registers) for each row, head and segment. Rows are always computed as few rows are, up to
/// kMostRows of the heads that share keys at a time, with an exchange for each such group of rows:
/// a long prompt is cheaper by `distributed::forward` over the rows of `layout` and then
/// `append_own`. Memory: that of at most twice the rank's tokens, which are its share and at most a
/// block; and for a step twice the running softmaxes of all segments, and the keys that travel.
///
/// It must not be called from several threads at once. Where one rank throws, all throw the same
/// message, with its number before it. Ranks whose calls differ in sizes are refused; whether they
/// pass the same numbers is not checked. Errors are std::invalid_argument or std::bad_alloc, and
/// leave the decoder and the outputs as they were. What a user's executor throws while it computes
/// leaves the decoder so, and the outputs unspecified. std::runtime_error is thrown if MPI fails.
template <class Op, class T>
requires PatternAttention<Op, T>
class SoftmaxDecoder {
 public:
  /// Keys that are seen in steps of at most this have their segments on one rank each, if the
  /// least common multiple of these steps is not more, too.
  static constexpr Index kMostStep = SpreadDecoderCore<T>::kMostStep;

  /// An empty decoder, which all ranks make together.
  /// \param ranks must outlive this object
  /// \throws std::invalid_argument if the options or the sizes do not allow a decoder, if no head
  /// looks back without an end, or if sizes differ between ranks; std::bad_alloc for shape.reserve
  SoftmaxDecoder(const Op& op, const DecoderShape& shape, const Communicator& ranks)
      : op_(op), core_(op_, detail::options_text(op_), shape, ranks) {}

  /// The number of tokens so far.
  [[nodiscard]] Index length() const { return core_.length(); }
  /// The number of positions of a block.
  [[nodiscard]] Index block() const { return core_.block(); }
  /// Which rank keeps which of that many tokens.
  [[nodiscard]] RowLayout layout(Index tokens) const { return core_.layout(tokens); }
  /// Bytes of memory of this rank for keys, values and scratch.
  [[nodiscard]] Index memory_bytes() const { return core_.memory_bytes(); }

  /// Appends n tokens, of which each rank keeps its own. Cost: two agreements, and O(D + Dv) for
  /// each token that the rank keeps and key head, on average.
  /// \param tokens k [B, Hk, n, D] and v [B, Hk, n, Dv], the same on all ranks
  /// \throws std::invalid_argument if their shapes are not those of the decoder; std::bad_alloc
  void append(const KeyValueTokens<T>& tokens) { core_.append(tokens); }
  /// Appends n tokens: k [B, Hk, n, D] and v [B, Hk, n, Dv].
  void append(const View<const T>& k, const View<const T>& v) { append({k, v}); }

  /// Appends `count` tokens, of which each rank brings those that it keeps. \param tokens the
  /// rank's, in ascending order: those at positions length() + n that `layout(length() + count)`
  /// gives it   \throws as append
  void append_own(const KeyValueTokens<T>& tokens, Index count) { core_.append_own(tokens, count); }

  /// Forgets the tokens from position `length` on. Cost: an agreement.
  /// \throws std::invalid_argument if `length` is not one of 0 to length()
  void rollback(Index length) { core_.rollback(length); }
  /// Forgets all tokens and keeps the memory. All ranks call it, but do not meet.
  void clear() noexcept { core_.clear(); }
  /// Takes the memory of this rank's part of that many tokens in all. Cost: an agreement.
  /// \throws std::invalid_argument if `tokens` is negative; std::bad_alloc
  void reserve(Index tokens) { core_.reserve(tokens); }

  /// Computes attention for the last n positions. If the inputs have k and v, these are appended
  /// first.
  /// \param inputs q [B, Hq, n, D], and the rest as in `forward` of the operator, where Nk is the
  /// length after appending: all the same on all ranks
  /// \param out [B, Hq, n, Dv], of which every element is written on all ranks
  /// \param saved lse [B, Hq, n, 1], written if it has a tensor
  /// \param executor runs the segments of this rank, as in `forward` of the operator
  /// \returns the messages of this rank
  template <class Out, class E = Serial>
  Traffic step(const SoftmaxInputs<T>& inputs, Out&& out, const SoftmaxSaved<T>& saved,
               E&& executor = {}) {
    return core_.step(op_, op_.template score_modifier<Compute<T>, false>(),
                      {inputs, View<T>(out), saved}, detail::RanksCall(op_, executor));
  }

  /// The same on the calling thread, where nothing is saved.
  template <class Out>
  Traffic step(const SoftmaxInputs<T>& inputs, Out&& out) {
    return step(inputs, View<T>(out), SoftmaxSaved<T>{});
  }
  /// The same, where nothing is saved.
  template <class Out, class E>
  requires(!std::convertible_to<E, SoftmaxSaved<T>>) Traffic
      step(const SoftmaxInputs<T>& inputs, Out&& out, E&& executor) {
    return step(inputs, View<T>(out), SoftmaxSaved<T>{}, executor);
  }

 private:
  Op op_;
  SpreadDecoderCore<T> core_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
