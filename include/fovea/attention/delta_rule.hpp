// SPDX-License-Identifier: MIT
/// \file
/// Fast-weight attention by the delta rule (Schlag, Irie and Schmidhuber 2021; FMMformer, Table 2).
#pragma once

#include "fovea/attention/linear/decoder.hpp"
#include "fovea/attention/linear/operator.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of DeltaRuleAttention.
struct DeltaRuleOptions {
  /// The position of query row 0 if Nq != Nk.
  CausalAlignment alignment = CausalAlignment::bottom_right;
};

/// Causal: W_t = W_{t-1} + beta_t (v_t - W_{t-1} k'_t) k'_t^T, and the row at position t reads
/// W_t q', after the update; W_{-1} = 0. k' = phi(k) / sum phi(k), q' likewise, 0 if all features
/// are 0; no other normaliser (MATHS.md, section 4).
/// beta [B, Hk, Nk, 1] is finite and at least 0; beyond 2 / |k'|^2 the recurrence grows.
/// Shapes, lengths, packing and heads as in LinearAttention. A row that sees no key is +0.
/// Cost: 6 D Dv flops per token and about 2 kDeltaChunk (D + 2 Dv) more.
template <class Map = EluPlusOne>
class DeltaRuleAttention : public LinearOnlyOperator<DeltaRuleAttention<Map>> {
  static_assert(FeatureMap<Map>);

 public:
  static constexpr bool kHasBeta = true;

  template <class T>
  using Inputs = DeltaInputs<T>;
  template <class T>
  using Grads = DeltaGrads<T>;

  /// What a decoder takes of new tokens.
  template <class T>
  using Tokens = DeltaTokens<T>;

  DeltaRuleOptions options;

  explicit DeltaRuleAttention(const DeltaRuleOptions& chosen = {}) : options(chosen) {}

  static constexpr const char* name() { return "DeltaRuleAttention"; }

  /// Its one term, for arithmetic in T.
  template <class T>
  LinearTermsOf<T, DeltaRule<Map>> far() const {
    return LinearTermsOf<T, DeltaRule<Map>>::template of<DeltaRule<Map>>(Denominator::propagate(),
                                                                         true, options.alignment);
  }

  template <class T>
  void check_options() const {}

  /// The same attention for tokens that come one after the other: constant memory.
  /// \throws as the constructor of LinearDecoder
  template <class T>
  [[nodiscard]] LinearDecoder<DeltaRuleAttention, T> decoder(const DecoderShape& shape) const {
    return {*this, shape};
  }
};

FOVEA_NAMESPACE_END
