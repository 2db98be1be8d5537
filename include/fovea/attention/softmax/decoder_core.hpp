// SPDX-License-Identifier: MIT
/// \file
/// What every softmax decoder computes, whatever its operator: the cache of keys and values, and
/// the attention of the last positions over it.
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

/// A decoder for tensors of T. Each call is given the operator anew, which is always the same one.
/// Decoder documents the calls.
template <class T>
class SoftmaxDecoderCore {
 public:
  /// The modifier of the logits.
  using Modifier = ScoreModifierArgs<Compute<T>>;

  /// An empty decoder.
  SoftmaxDecoderCore(const SoftmaxOperatorRef& op, const DecoderShape& shape);

  /// The number of tokens so far.
  Index length() const { return cache_.length(); }
  /// Bytes of memory for keys, values and scratch.
  Index memory_bytes() const;
  /// Forgets the tokens from position `length` on. \param op the name in messages
  void rollback(const char* op, Index length);
  /// Forgets all tokens and keeps the memory.
  void clear() noexcept;
  /// Takes memory for that many tokens in all. \param op the name in messages
  void reserve(const char* op, Index tokens);
  /// Appends tokens. \param op the name in messages
  void append(const char* op, const KeyValueTokens<T>& tokens);
  /// The tokens that are held.
  HeldTokens<T> held() const;
  /// Replaces the tokens by these.
  void restart(const HeldTokens<T>& held);
  /// A copy that is independent of it.
  SoftmaxDecoderCore fork() const;

  /// One step. For few rows K and V are read once by the heads that share a key head and a pattern,
  /// and by all threads.
  void step(const SoftmaxOperatorRef& op, const Modifier& modifier, const SoftmaxInputs<T>& inputs,
            const View<T>& out, const SoftmaxSaved<T>& saved, const ExecutorRef& executor);

 private:
  friend class ScorePasses<T>;  // fovea/attention/scores.hpp

  struct Place;
  struct Step;

  SoftmaxDecoderCore(const SoftmaxDecoderCore& other, DecoderCache<T> cache);

  const RetainedKeys& scope() const { return cache_.scope(); }
  /// The number of keys before a query that it sees among the recent ones.
  Index left() const { return scope().reach().before; }
  Index length_after(const SoftmaxInputs<T>& inputs) const;
  /// The last rows of a sequence that ends with the new tokens.
  SequenceShape rows_after(const SoftmaxInputs<T>& inputs) const;
  /// The first recent key that rows see.
  Index first_key(const SequenceShape& rows) const;
  Place place(const Step& step, const SequenceShape& rows, Index first_key) const;
  AnyPattern pattern(const SoftmaxOperatorRef& op, Index h, const SequenceShape& rows) const;

  static RetainedKeys checked_scope(const SoftmaxOperatorRef& op, const DecoderShape& shape);
  void check_step(const Step& step) const;
  void check_held(const char* op, Index rows, Index after) const;
  void append_new(const SoftmaxInputs<T>& inputs) noexcept;
  bool are_few(const SoftmaxOperatorRef& op, const SequenceShape& rows, Index workers) const;
  void attend_few(const Step& step, const ExecutorRef& executor);
  void attend_many(const Step& step, const ExecutorRef& executor);
  /// Runs a forward pass. \param append called after the memory is taken; it fills k and v
  void forward(const Step& step, const SequenceShape& rows, Index first_key, const View<const T>& k,
               const View<const T>& v, const ExecutorRef& executor, FunctionRef<void()> append);

  DecoderShape shape_;
  DecoderCache<T> cache_;
  HeadGroups head_groups_;
  DecodePlan decode_plan_;  // that of the last step, kept for its memory
  Workspace scratch_;       // that of the last step, kept for its memory
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/softmax/decoder_core.inl.hpp"
#endif
