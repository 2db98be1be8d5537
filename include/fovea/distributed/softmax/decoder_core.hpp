// SPDX-License-Identifier: MIT
/// \file
/// The operator-independent core of distributed softmax decoders.
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
class ShardedSplitKv;

/// A decoder for tensors of T; see SoftmaxDecoder. All calls pass the same operator.
template <class T>
class ShardedDecoderCore {
 public:
  /// The modifier of the logits.
  using Modifier = ScoreModifierArgs<Compute<T>>;
  static constexpr Index kMostStep = 16;  ///< as SoftmaxDecoder::kMostStep

  /// An empty decoder. \param options the operator's, as text
  ShardedDecoderCore(const SoftmaxOperatorRef& op, const std::string& options,
                     const DecoderShape& shape, const Communicator& ranks);

  /// The number of tokens so far.
  Index length() const { return length_; }
  /// The number of positions of a block.
  Index block() const { return fixed_.blocks.size(); }
  /// The layout of that many tokens.
  RowLayout layout(Index tokens) const;
  /// Bytes of memory of this rank for keys, values and scratch.
  Index memory_bytes() const;
  /// Appends tokens; each rank stores its own.
  void append(const KeyValueTokens<T>& tokens);
  /// Appends `count` tokens; each rank passes its own.
  void append_own(const KeyValueTokens<T>& tokens, Index count);
  /// Removes the tokens from position `length` on.
  void rollback(Index length);
  /// Removes all tokens and keeps the memory.
  void clear() noexcept { truncate(0); }
  /// Allocates this rank's memory for that many tokens in total.
  void reserve(Index tokens);
  /// One step. \param call of the operator
  CommStats step(const SoftmaxOperatorRef& op, const Modifier& modifier, const SoftmaxStep<T>& step,
                 const detail::CollectiveCall& call);

 private:
  /// State derived from the operator and the sizes.
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
  /// The number of rows computed at a time.
  Index rows_at_once() const;
  void truncate(Index length) noexcept;
  void check_tokens(const KeyValueTokens<T>& tokens, Index most) const;
  /// Reserves memory for this rank's part of that many tokens in total.
  void make_room(Index tokens) { cache_.make_room((std::max)(Index{1}, own_count(tokens))); }
  /// Appends tokens. \param check checks this rank's arguments
  /// \param put_own appends this rank's tokens, for which memory is reserved
  void append(const char* call, Index count, FunctionRef<void()> check,
              FunctionRef<void()> put_own);
  /// Appends this rank's part of the next tokens. \pre memory is reserved
  void put(const View<const T>& k, const View<const T>& v) noexcept;
  void put_new(const SoftmaxInputs<T>& inputs) noexcept;
  /// The last rows of a sequence that ends with the new tokens.
  SequenceShape rows_after(const SoftmaxInputs<T>& inputs) const;
  /// The rows computed at a time, from row `first` on.
  SequenceShape chunk(const SequenceShape& rows, Index first) const;
  AnyPattern pattern(const SoftmaxOperatorRef& op, Index h, const SequenceShape& rows) const;
  std::unique_ptr<Pass> prepare(const SoftmaxOperatorRef& op, const Modifier& modifier,
                                const SoftmaxStep<T>& step, const ExecutorRef& executor);
  /// Computes some rows of a step, whose tokens were appended. \returns the exception that the
  /// executor threw
  std::exception_ptr run(ShardedSplitKv<T>& chunk, const SoftmaxOperatorRef& op,
                         const Modifier& modifier, SoftmaxStep<T> step, const SequenceShape& rows,
                         const ExecutorRef& executor);
  /// Describes the parts of a call that must be equal on all ranks.
  std::string call_text(const std::string& call, Index number) const;

  const char* name_;
  DecoderShape shape_;
  Index length_ = 0;
  const Communicator* ranks_;
  Fixed fixed_;
  detail::MpiType row_;   // a key and its value
  detail::MpiType unit_;  // of running softmaxes
  KeyValueCache<T> cache_;
  DecodePlan plan_;      // the last step's, kept for its memory
  DecodeShares shares_;  // likewise
  Workspace scratch_;    // likewise
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/softmax/decoder_core.inl.hpp"
#endif
