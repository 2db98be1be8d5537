// SPDX-License-Identifier: MIT
/// \file
/// The computation of a Performer decoder: the state of each key head's sums.
#pragma once

#include <vector>

#include "fovea/attention/linear/performer_passes.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/linear/linear.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T>
class FeatureStream;

/// n new tokens of a PerformerAttention decoder.
template <class T>
struct PerformerTokens {
  ViewMember<const T> k;                    ///< keys, [B, Hk, n, D]
  ViewMember<const T> v;                    ///< values, [B, Hk, n, Dv]
  ViewMember<const Compute<T>> projection;  ///< [1, 1, R, D], the same for all tokens
};

/// A decoder for tensors of T. LinearDecoder documents the calls.
template <class T>
class PerformerDecoderCore {
 public:
  /// An empty decoder.
  PerformerDecoderCore(const PerformerSettings& op, const PerformerDecoderShape& shape);

  /// The number of tokens so far.
  Index length() const { return length_; }
  /// Bytes of memory for the states and the scratch.
  Index memory_bytes() const;
  /// Drops the tokens from position `length` on.
  void rollback(Index length);
  /// Drops all tokens and keeps the memory.
  void clear() noexcept { length_ = 0; }
  /// Checks that `tokens` is not negative.
  void reserve(Index tokens) const;
  /// Appends the inputs' tokens k and v, with their projection; other members are not read.
  void append(PerformerInputs<T> inputs);
  /// One step, with at most one row more than new tokens.
  void step(const PerformerInputs<T>& inputs, const View<T>& out, const LinearSaved<T>& saved,
            const ExecutorRef& executor);
  /// An independent copy.
  PerformerDecoderCore fork() const;

 private:
  using Stream = FeatureStream<T>;
  class Observer;

  static const PerformerDecoderShape& checked(const PerformerSettings& op,
                                              const PerformerDecoderShape& shape);

  Index heads() const { return shape_.batch * shape_.key_heads; }
  /// The query heads of a key head.
  Index group() const;
  Index row() const { return padded_row<T>(shape_.features); }
  /// Elements of the state of a key head.
  Index state_elements() const;
  /// Elements of a key head: its state, the state before a raise in the open chunk, and the logits
  /// of that chunk's tokens.
  Index head_elements() const { return 2 * state_elements() + kLinearChunk * row(); }
  T* state(Index head) { return memory_.template data<T>() + head * head_elements(); }
  T* state_before(Index head) { return state(head) + state_elements(); }
  T* logits(Index head) { return state_before(head) + state_elements(); }

  /// The tokens of the open chunk, after its first one, that raised a reference.
  struct ReferenceRaises {
    Index first = -1;
    Index last = -1;  // or a token after the last
  };

  /// Restores a key head's state of `length` tokens if later ones raised a reference: the state
  /// before the first raise, to which tokens are added again.
  void undo_raises(Index head, Index length);
  PerformerShape call_shape() const;
  void check_tokens(const PerformerInputs<T>& inputs) const;
  void check_step(const PerformerInputs<T>& inputs, const View<T>& out) const;
  /// Adds the tokens of the inputs, and computes the rows. Everything is checked already. What may
  /// throw comes first.
  void add(const PerformerInputs<T>& inputs, const View<T>& out, const ExecutorRef& executor);

  PerformerSettings op_;
  PerformerDecoderShape shape_;
  Workspace memory_;                    // [B, Hk, head_elements]
  std::vector<ReferenceRaises> marks_;  // [B, Hk]
  Index length_ = 0;
  Workspace scratch_;
  std::vector<LinearRows<T>> rows_;
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/linear/performer_decoder_core.inl.hpp"
#endif
