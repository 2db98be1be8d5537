// SPDX-License-Identifier: MIT
/// \file
/// Performer attention: linear attention with positive random features (Choromanski et al. 2020,
/// FAVOR+; MATHS.md, section 7).
#pragma once

#include "fovea/attention/linear/decoder.hpp"
#include "fovea/attention/linear/operator.hpp"
#include "fovea/attention/linear/performer_decoder_core.hpp"
#include "fovea/attention/linear/performer_passes.hpp"
#include "fovea/attention/linear/random_projection.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of PerformerAttention.
struct PerformerOptions {
  /// If true, row i sees the keys up to and including its own position.
  bool causal = false;
  /// Position of query row 0; by default the queries end where the rows of k end.
  CausalAlignment alignment = CausalAlignment::bottom_right;
};

/// Performer attention: out_i = sum_j <phi(q_i), phi(k_j)> v_j / sum_j <phi(q_i), phi(k_j)> over
/// the keys j that are visible to row i, with phi(x)_r = exp(<w_r, xh> - |xh|^2 / 2) / sqrt(R), xh
/// = x / D^(1/4), for a projection W [R, D], an input (`draw_projection` draws one; MATHS.md,
/// section 7). For Gaussian w_r the mean of <phi(q), phi(k)> is exp(<q, k> / sqrt(D)). Nothing is
/// added to features or denominators. The map's logits may be anywhere in the type's range: a
/// maximum is subtracted from those of queries, and for each feature the largest logit, or if
/// causal a running reference, from those of keys. Both cancel. A row that sees no key is +0.
/// Shapes, key lengths, packed sequences and heads are as in LinearAttention. Tensors are float or
/// double. Bits and errors are as in LinearOperator. A decoder gets the projection at every step;
/// it must be the same for all of them.
/// Cost: 2 R D + 2 R Dv flops for each query and each key, and when causal about 2 kLinearChunk (R
/// + Dv) more. Memory: O(R (D + Dv + kLinearSegment)) for each worker, and if it is not causal R Dv
/// for each kLinearSegment tokens of a key head; a decoder keeps for each key head twice about 4 R
/// Dv numbers and a chunk of tokens.
/// Gradients: that of the projection is summed over batch, heads and rows in a two-word
/// accumulator. Features and states are recomputed. Cost: 8 R D + 12 R Dv flops for each token and
/// head, and 4 R D more for the projection. Memory: O(N) and, for every 128 tokens of a key head, R
/// numbers.
class PerformerAttention : public LinearOperator<PerformerAttention> {
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
  /// The forward pass's implementation.
  template <class T>
  using Passes = PerformerPasses<T>;
  /// The backward pass's implementation.
  template <class T>
  using BackwardPasses = PerformerBackwardPasses<T>;

  PerformerOptions options;  ///< all values are valid

  /// Holds the options.
  explicit PerformerAttention(const PerformerOptions& chosen = {}) : options(chosen) {}

  /// The operator's name.
  static constexpr const char* name() { return "PerformerAttention"; }

  /// The operator's settings that the passes read.
  template <class C>
  PerformerSettings settings() const {
    return {name(), {options.causal, options.alignment}};
  }

  /// A decoder: the same attention token by token, in constant memory.
  /// \throws as LinearDecoder's constructor does
  template <class T>
  [[nodiscard]] LinearDecoder<PerformerAttention, T> decoder(
      const PerformerDecoderShape& shape) const {
    return {*this, shape};
  }
};

FOVEA_NAMESPACE_END
