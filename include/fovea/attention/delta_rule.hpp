// SPDX-License-Identifier: MIT
/// \file
/// Fast-weight attention by the delta rule (Schlag, Irie and Schmidhuber 2021; FMMformer, Table 2;
/// MATHS.md, section 4).
#pragma once

#include "fovea/attention/linear/decoder.hpp"
#include "fovea/attention/linear/operator.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of DeltaRuleAttention.
struct DeltaRuleOptions {
  /// Position of query row 0; by default the queries end where the rows of k end.
  CausalAlignment alignment = CausalAlignment::bottom_right;
};

/// Attention by the delta rule, which is causal: W_t = W_{t-1} + beta_t (v_t - W_{t-1} k'_t) k'_t^T
/// with W_{-1} = 0, and the row at position t reads W_t q', after the update. Here k' = phi(k) /
/// sum phi(k), q' likewise, and both are 0 where all features are 0. There is no other
/// normalisation (MATHS.md, section 4).
/// The rates beta [B, Hk, Nk, 1] are finite and at least 0; beyond 2 / |k'|^2 the recurrence grows.
/// Shapes, key lengths, packed sequences and heads are as in LinearAttention. A row that sees no
/// key is +0.
/// Cost: 6 D Dv flops for each token, and about 2 kDeltaChunk (D + 2 Dv) more.
template <class Map = EluPlusOne>
class DeltaRuleAttention : public LinearOnlyOperator<DeltaRuleAttention<Map>, true> {
  static_assert(FeatureMap<Map>, "fovea: DeltaRule requires a feature map, such as EluPlusOne");

 public:
  /// The inputs, for tensors of T.
  template <class T>
  using Inputs = DeltaInputs<T>;
  /// The gradients, for tensors of T.
  template <class T>
  using Grads = DeltaGrads<T>;

  /// A decoder's new tokens: k, v and beta.
  template <class T>
  using Tokens = DeltaTokens<T>;

  /// The options, which need no check.
  DeltaRuleOptions options;

  /// Holds the options.
  explicit DeltaRuleAttention(const DeltaRuleOptions& chosen = {}) : options(chosen) {}

  /// The operator's name.
  static constexpr const char* name() { return "DeltaRuleAttention"; }

  /// The only term of the far field, for arithmetic in T.
  template <class T>
  LinearTermsOf<T, DeltaRule<Map>> far_field() const {
    return LinearTermsOf<T, DeltaRule<Map>>::template of<DeltaRule<Map>>(
        Denominator::propagate(), true, options.alignment, CombineMaps::sum);
  }

  /// A decoder: the same attention token by token, in constant memory.
  /// \throws as LinearDecoder's constructor does
  template <class T>
  [[nodiscard]] LinearDecoder<DeltaRuleAttention, T> decoder(const DecoderShape& shape) const {
    return {*this, shape};
  }
};

FOVEA_NAMESPACE_END
