// SPDX-License-Identifier: MIT
/// \file
/// Performer attention: linear attention with positive random features (Choromanski et al. 2020,
/// FAVOR+; MATHS.md, section 7).
#pragma once

#include <type_traits>

#include "fovea/attention/call/backward_calls.hpp"
#include "fovea/attention/call/forward_calls.hpp"
#include "fovea/attention/linear/performer_decoder.hpp"
#include "fovea/attention/linear/performer_passes.hpp"
#include "fovea/attention/linear/random_projection.hpp"
#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of PerformerAttention.
struct PerformerOptions {
  /// If true, row i sees no key after its own position, but the key at it.
  bool causal = false;
  /// Position of query row 0; by default the queries end where the rows of k end.
  CausalAlignment alignment = CausalAlignment::bottom_right;
};

/// Performer attention: out_i = sum_j <phi(q_i), phi(k_j)> v_j / sum_j <phi(q_i), phi(k_j)> over
/// the keys j that are visible to row i, with phi(x)_r = exp(<w_r, xh> - |xh|^2 / 2) / sqrt(R), xh
/// = x / D^(1/4), for a projection W [R, D], an input (`draw_projection` draws one; MATHS.md,
/// section 7). For Gaussian w_r the mean of <phi(q), phi(k)> is exp(<q, k> / sqrt(D)). Nothing is
/// added to features or denominators. The map's logits may be anywhere in the type's range: from
/// queries a maximum is subtracted, from keys per feature a running reference if causal, or else
/// the largest logit. Both cancel. A row that sees no key is +0. Shapes, key lengths, packed
/// sequences and heads are as in LinearAttention. Tensors are float or double.
/// A row's bits do not depend on threads, batch, heads or strides, nor on what the row does not
/// see; a decoder gives the same bits.
/// Errors: `forward` and `backward` throw what `check` and `check_backward` throw, and
/// std::bad_alloc, before anything is written.
/// Cost: 2 R D + 2 R Dv flops for each query and each key, and when causal about 2 kLinearChunk (R
/// + Dv) more. Memory: O(R (D + Dv + kLinearSegment)) for each worker, and if it is not causal R Dv
/// for each kLinearSegment tokens of a key head.
class PerformerAttention : public ForwardCalls<PerformerAttention>,
                           public BackwardCalls<PerformerAttention> {
 public:
  /// The inputs, for tensors of T.
  template <class T>
  using Inputs = PerformerInputs<T>;
  /// What the forward pass saves: nothing.
  template <class T>
  using Saved = LinearSaved<T>;
  /// The gradients, for tensors of T.
  template <class T>
  using Grads = PerformerGrads<T>;
  /// A decoder's new tokens: k, v and the projection.
  template <class T>
  using Tokens = PerformerTokens<T>;
  /// A call's sizes.
  using Shape = PerformerShape;
  /// A decoder's sizes.
  using DecoderShape = PerformerDecoderShape;

  PerformerOptions options;  ///< all values are valid

  /// Holds the options.
  explicit PerformerAttention(const PerformerOptions& chosen = {}) : options(chosen) {}

  /// The operator's name.
  static constexpr const char* name() { return "PerformerAttention"; }

  /// Checks `forward`'s arguments. Cost: O(1), and O(B) or O(S) for key lengths and packed
  /// sequences.
  /// \throws std::invalid_argument, whose message names the operator, the tensor, the dimension,
  /// what was expected and what was given
  template <class T>
  void check(const std::type_identity_t<PerformerInputs<T>>& inputs, const View<T>& out,
             const std::type_identity_t<LinearSaved<T>>& /*saved*/ = {}) const {
    PerformerPasses<T>::check(settings(), inputs, out);
  }

  /// \throws std::invalid_argument as `check` does, for everything that `backward` takes
  template <class T>
  void check_backward(const std::type_identity_t<PerformerInputs<T>>& inputs,
                      const View<const T>& out,
                      const std::type_identity_t<LinearSaved<T>>& /*saved*/,
                      const View<const T>& d_out,
                      const std::type_identity_t<PerformerGrads<T>>& grads) const {
    PerformerPasses<T>::check_backward(settings(), inputs, out, d_out, grads);
  }

  /// Bytes of scratch memory for `forward` with that many workers.
  template <class T>
  [[nodiscard]] Index workspace_bytes(const PerformerShape& shape, Index workers = 1) const {
    return PerformerPasses<T>::workspace_bytes(settings(), shape, workers);
  }

  /// Bytes of scratch memory for `backward` with that many workers.
  template <class T>
  [[nodiscard]] Index backward_workspace_bytes(const PerformerShape& shape,
                                               Index workers = 1) const {
    return PerformerPasses<T>::backward_workspace_bytes(settings(), shape, workers);
  }

  /// The number of visible (query, key) pairs of one query head; the largest Index if there are
  /// more.
  [[nodiscard]] Index attended_pairs(const PerformerShape& shape, Index /*head*/ = 0) const {
    const auto sequence = SequenceShape::of(shape.queries, shape.keys, options.alignment);
    return options.causal ? Causal{}.plan(sequence).attended_pairs()
                          : Dense{}.plan(sequence).attended_pairs();
  }

  /// The operator's settings that the passes read.
  PerformerSettings settings() const { return {name(), {options.causal, options.alignment}}; }

  /// A decoder: the same attention token by token, in constant memory.
  /// \throws as PerformerDecoder's constructor does
  template <class T>
  [[nodiscard]] PerformerDecoder<PerformerAttention, T> decoder(
      const PerformerDecoderShape& shape) const {
    return {*this, shape};
  }

 private:
  friend class ForwardCalls<PerformerAttention>;
  friend class BackwardCalls<PerformerAttention>;

  template <class T>
  void run(const PerformerInputs<T>& inputs, const View<T>& out, const LinearSaved<T>& /*saved*/,
           const ExecutorRef& executor) const {
    PerformerPasses<T>::forward(settings(), inputs, out, executor);
  }

  /// Writes the gradients of the loss, given d_out, its gradient with respect to out: the exact
  /// derivatives of `forward`, and 0 for what is not visible. That of the projection is summed over
  /// batch, heads and rows in a two-word accumulator. Features and states are recomputed.
  /// Cost: 8 R D + 12 R Dv flops for each token and head, and 4 R D more for the projection.
  /// Memory: O(N) and, for every 128 tokens of a key head, R numbers.
  template <class T>
  void run_backward(const PerformerInputs<T>& inputs, const View<const T>& /*out*/,
                    const LinearSaved<T>& /*saved*/, const View<const T>& d_out,
                    const PerformerGrads<T>& grads, const ExecutorRef& executor) const {
    PerformerPasses<T>::backward(settings(), inputs, d_out, grads, executor);
  }
};

FOVEA_NAMESPACE_END
