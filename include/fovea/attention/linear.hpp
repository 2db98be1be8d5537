// SPDX-License-Identifier: MIT
/// \file
/// Linear attention with any feature maps (FMMformer, eqs. 8-10; Katharopoulos et al. 2020).
#pragma once

#include "fovea/attention/linear/decoder.hpp"
#include "fovea/attention/linear/operator.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of LinearAttention.
template <class... Maps>
struct LinearOptions {
  /// Keys after the query's position are invisible; the position itself is visible.
  bool causal = false;
  /// The position of query row 0 if Nq != Nk.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// Has to be given if a map may be negative.
  DenominatorOption<Maps...> denominator = {};
};

/// out_i = sum_l phi_l(q_i)^T S_li / (phi_l(q_i)^T z_li) with S_li = sum_j phi_l(k_j) v_j^T and
/// z_li = sum_j phi_l(k_j) over the keys j that are visible to row i: each map has its own
/// denominator, and there is no factor 1 / sqrt(D) (MATHS.md, section 4).
/// A row that sees no key is +0. Features that underflow to 0 count as 0: a denominator of 0 is
/// treated as `denominator` says. Shapes as in LinearInputs; no lse; Nq != Nk, key lengths, packed
/// sequences, grouped heads and Dv != D as in softmax attention.
/// Cost: 4 D Dv flops per token and map, and when causal about 2 kLinearChunk (D + Dv) more; memory
/// O(D Dv) for each worker and map, and when not causal N / kLinearSegment states for each key
/// head.
template <class... Maps>
class LinearAttention : public LinearOnlyOperator<LinearAttention<Maps...>> {
  static_assert(sizeof...(Maps) > 0 && (FeatureMap<Maps> && ...));

 public:
  static constexpr bool kHasBeta = false;

  template <class T>
  using Inputs = LinearInputs<T>;
  template <class T>
  using Grads = LinearGrads<T>;

  /// What a decoder takes of new tokens.
  template <class T>
  using Tokens = KeyValueTokens<T>;

  LinearOptions<Maps...> options;

  LinearAttention() requires std::default_initializable<DenominatorOption<Maps...>>
  = default;
  explicit LinearAttention(const LinearOptions<Maps...>& chosen) : options(chosen) {}

  static constexpr const char* name() { return "LinearAttention"; }

  /// Its sums, for arithmetic in T.
  template <class T>
  LinearTermsOf<T, Maps...> far() const {
    return LinearTermsOf<T, Maps...>::template of<Maps...>(options.denominator, options.causal,
                                                           options.alignment);
  }

  template <class T>
  void check_options() const {
    check_denominator<T>(name(), options.denominator);
  }

  /// The same attention for tokens that come one after the other: constant memory.
  /// \throws as the constructor of LinearDecoder
  template <class T>
  [[nodiscard]] LinearDecoder<LinearAttention, T> decoder(const DecoderShape& shape) const {
    return {*this, shape};
  }
};

FOVEA_NAMESPACE_END
