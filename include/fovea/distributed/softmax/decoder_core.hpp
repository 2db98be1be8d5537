// SPDX-License-Identifier: MIT
/// \file
/// What every decoder of softmax attention over ranks computes, whatever its operator.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <string>

#include "fovea/attention/call/key_value_cache.hpp"
#include "fovea/attention/softmax/decode_plan.hpp"
#include "fovea/attention/softmax/retained_keys.hpp"
#include "fovea/distributed/messages/mpi_type.hpp"
#include "fovea/distributed/softmax/call.hpp"
#include "fovea/distributed/softmax/decode_shares.hpp"
#include "fovea/distributed/softmax/key_blocks.hpp"
#include "fovea/distributed/softmax/step.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

template <class T>
class SpreadSplitKv;

/// A decoder for tensors of T. SoftmaxDecoder documents its calls. It is always given the same
/// operator.
template <class T>
class SpreadDecoderCore {
 public:
  /// The modifier of the logits.
  using Modifier = ScoreModifierArgs<Compute<T>>;
  static constexpr Index kMostStep = 16;  ///< as SoftmaxDecoder::kMostStep

  /// An empty decoder. \param options those of the operator in words
  SpreadDecoderCore(const SoftmaxOperatorRef& op, const std::string& options,
                    const DecoderShape& shape, const Communicator& ranks);

  /// The number of tokens so far.
  Index length() const { return length_; }
  /// The number of positions of a block.
  Index block() const { return fixed_.blocks.size(); }
  /// Which rank keeps which of that many tokens.
  RowLayout layout(Index tokens) const;
  /// Bytes of memory of this rank for keys, values and scratch.
  Index memory_bytes() const;
  /// Appends tokens, of which each rank keeps its own.
  void append(const KeyValueTokens<T>& tokens);
  /// Appends `count` tokens, of which each rank brings its own.
  void append_own(const KeyValueTokens<T>& tokens, Index count);
  /// Forgets the tokens from position `length` on.
  void rollback(Index length);
  /// Forgets all tokens and keeps the memory.
  void clear() noexcept { truncate(0); }
  /// Takes the memory of this rank's part of that many tokens in all.
  void reserve(Index tokens);
  /// One step. \param call of the operator
  Traffic step(const SoftmaxOperatorRef& op, const Modifier& modifier, const SoftmaxStep<T>& step,
               const detail::RanksCall& call);

 private:
  /// What follows from the operator and the sizes.
  struct Fixed {
    RetainedKeys scope;
    HeadGroups groups;
    KeyBlocks blocks;
    Index row_bytes;  // of a key and its value
  };
  struct Pass;

  Fixed agreed_parts(const SoftmaxOperatorRef& op, const std::string& options) const;
  static Index common_step(const RetainedKeys& scope);
  Index own_count(Index length) const { return fixed_.blocks.count(ranks_->rank(), length); }
  /// The number of rows that are computed at a time.
  Index rows_at_once() const;
  void truncate(Index length) noexcept;
  void check_tokens(const KeyValueTokens<T>& tokens, Index most) const;
  /// Makes room for this rank's part of that many tokens in all.
  void make_room(Index tokens) { cache_.make_room((std::max)(Index{1}, own_count(tokens))); }
  /// Appends tokens. \param check checks what this rank brings
  /// \param put_own appends the tokens of this rank, for which there is room
  void append(const char* call, Index count, FunctionRef<void()> check,
              FunctionRef<void()> put_own);
  /// Appends those of the next tokens that this rank keeps. \pre there is room for them
  void put(const View<const T>& k, const View<const T>& v) noexcept;
  void put_new(const SoftmaxInputs<T>& inputs) noexcept;
  /// The last rows of a sequence that ends with the new tokens.
  SequenceShape rows_after(const SoftmaxInputs<T>& inputs) const;
  /// Those of them that are computed at a time, from row `first` on.
  SequenceShape chunk(const SequenceShape& rows, Index first) const;
  AnyPattern pattern(const SoftmaxOperatorRef& op, Index h, const SequenceShape& rows) const;
  std::unique_ptr<Pass> prepare(const SoftmaxOperatorRef& op, const Modifier& modifier,
                                const SoftmaxStep<T>& step, const ExecutorRef& executor);
  /// Computes some rows of a step, whose tokens are there. \returns what the executor has thrown
  std::exception_ptr run(SpreadSplitKv<T>& chunk, const SoftmaxOperatorRef& op,
                         const Modifier& modifier, SoftmaxStep<T> step, const SequenceShape& rows,
                         Traffic& sent, const ExecutorRef& executor);
  /// What is the same on all ranks of a call, in words.
  std::string call_text(const std::string& call, Index number) const;

  const char* name_;
  DecoderShape shape_;
  Index length_ = 0;
  const Communicator* ranks_;
  Fixed fixed_;
  detail::MpiType row_;   // a key and its value
  detail::MpiType unit_;  // of running softmaxes
  KeyValueCache<T> cache_;
  DecodePlan plan_;      // that of the last step, kept for its memory
  DecodeShares shares_;  // likewise
  Workspace scratch_;    // likewise
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/softmax/decoder_core.inl.hpp"
#endif
