// SPDX-License-Identifier: MIT
/// \file
/// The operator-independent part of softmax decoders: the cache of keys and values, and the
/// attention of the last positions over it.
#pragma once

#include "fovea/attention/attention.hpp"
#include "fovea/attention/softmax/decode_plan.hpp"
#include "fovea/attention/softmax/decoder_cache.hpp"
#include "fovea/attention/softmax/operator_ref.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T>
class ScorePasses;

/// A decoder for tensors of T. Each call must pass the same operator. Decoder documents the calls.
template <class T>
class SoftmaxDecoderCore {
 public:
  /// The modifier of logits.
  using Modifier = ScoreModifierArgs<Compute<T>>;

  /// An empty decoder.
  SoftmaxDecoderCore(const SoftmaxOperatorRef& op, const DecoderShape& shape);

  /// The number of tokens so far.
  Index length() const { return cache_.length(); }
  /// Bytes of memory for keys, values and scratch.
  Index memory_bytes() const;
  /// Drops the tokens from position `length` on. \param op the name in messages
  void rollback(const char* op, Index length);
  /// Drops all tokens and keeps the memory.
  void clear() noexcept;
  /// Allocates memory for that many tokens in all. \param op the name in messages
  void reserve(const char* op, Index tokens);
  /// Appends tokens. \param op the name in messages
  void append(const char* op, const KeyValueTokens<T>& tokens);
  /// The stored tokens.
  CachedTokens<T> held() const;
  /// Replaces the tokens by these.
  void restart(const CachedTokens<T>& held);
  /// An independent copy.
  SoftmaxDecoderCore fork() const;

  /// One step. For few rows, K and V are read once for all heads that share a key head and a
  /// pattern, and threads share the keys.
  void step(const SoftmaxOperatorRef& op, const Modifier& modifier, const SoftmaxInputs<T>& inputs,
            const View<T>& out, const SoftmaxSaved<T>& saved, const ExecutorRef& executor);

 private:
  friend class ScorePasses<T>;  // fovea/attention/scores.hpp

  struct Place;
  struct Step;

  SoftmaxDecoderCore(const SoftmaxDecoderCore& other, DecoderCache<T> cache);

  const RetainedKeys& scope() const { return cache_.scope(); }
  /// The number of recent keys before a query that it sees.
  Index left() const { return scope().receptive_field().before; }
  Index length_after(const SoftmaxInputs<T>& inputs) const;
  /// The query rows at the end of a sequence that includes the new tokens.
  SequenceShape rows_after(const SoftmaxInputs<T>& inputs) const;
  /// The first recent key that rows see.
  Index first_key(const SequenceShape& rows) const;
  Place place(const Step& step, const SequenceShape& rows, Index first_key) const;
  AnyPattern pattern(const SoftmaxOperatorRef& op, Index h, const SequenceShape& rows) const;

  static RetainedKeys checked_scope(const SoftmaxOperatorRef& op, const DecoderShape& shape);
  void check_step(const Step& step) const;
  void check_held(const char* op, Index rows, Index after) const;
  void append_new(const SoftmaxInputs<T>& inputs) noexcept;
  bool applies(const SoftmaxOperatorRef& op, const SequenceShape& rows, Index workers) const;
  void attend_few(const Step& step, const ExecutorRef& executor);
  void attend_many(const Step& step, const ExecutorRef& executor);
  /// Runs a forward pass. \param append called after memory is allocated; it fills k and v
  void forward(const Step& step, const SequenceShape& rows, Index first_key, const View<const T>& k,
               const View<const T>& v, const ExecutorRef& executor, FunctionRef<void()> append);

  DecoderShape shape_;
  DecoderCache<T> cache_;
  HeadGroups head_groups_;
  DecodePlan decode_plan_;  // the last step's, kept for its memory
  Workspace scratch_;       // the last step's, kept for its memory
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/softmax/decoder_core.inl.hpp"
#endif
