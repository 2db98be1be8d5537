// SPDX-License-Identifier: MIT
/// \file
/// Linear attention with any feature maps (FMMformer, eqs. 8-10; Katharopoulos et al. 2020;
/// MATHS.md, section 4).
#pragma once

#include "fovea/attention/linear/decoder.hpp"
#include "fovea/attention/linear/operator.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of LinearAttention with the feature maps `Maps`.
template <class... Maps>
struct LinearOptions {
  /// If true, row i sees the keys up to and including its own position.
  bool causal = false;
  /// Position of query row 0; by default the queries end where the rows of k end.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// The policy for denominators that vanish or change sign. Required if a map can be negative;
  /// otherwise the default is Denominator::propagate.
  DenominatorOption<Maps...> denominator = {};
  /// How several maps are combined; the default is the sum of their quotients.
  CombineMaps combine = CombineMaps::sum;
};

/// Linear attention: out_i = sum_l phi_l(q_i)^T S_li / (phi_l(q_i)^T z_li) with S_li = sum_j
/// phi_l(k_j) v_j^T and z_li = sum_j phi_l(k_j), over the keys j that are visible to row i. Each
/// map has its own denominator, and there is no factor 1/sqrt(D) (MATHS.md, section 4). With the
/// option `combine` it is the mean of the quotients instead, or one quotient of sums over all maps.
/// A row that sees no key is +0. Features that underflow to 0 count as 0; `denominator` determines
/// the result for a denominator of 0. Shapes are as in LinearInputs, and there is no lse. As in
/// softmax attention, Nq may differ from Nk and Dv from D, and there may be key lengths, packed
/// sequences and grouped heads.
/// Cost: 4 D Dv flops for each token and map, and when causal about 2 kLinearChunk (D + Dv) more.
/// Memory: O(D Dv) for each worker and map. Also, for each key head and map: if causal,
/// kSharedSegments * kSegmentChunks states if there are more workers than key heads, which then
/// share a head's tokens; if not causal, N / kLinearSegment states.
template <class... Maps>
class LinearAttention : public LinearOnlyOperator<LinearAttention<Maps...>, false> {
  static_assert(sizeof...(Maps) > 0 && (FeatureMap<Maps> && ...),
                "fovea: LinearAttention requires feature maps, such as EluPlusOne");

 public:
  /// The inputs, for tensors of T.
  template <class T>
  using Inputs = LinearInputs<T>;
  /// The gradients, for tensors of T.
  template <class T>
  using Grads = LinearGrads<T>;

  /// A decoder's new tokens: k and v.
  template <class T>
  using Tokens = KeyValueTokens<T>;

  LinearOptions<Maps...> options;  ///< checked at every call

  /// Default options. Only available if no denominator must be chosen.
  LinearAttention() requires std::default_initializable<DenominatorOption<Maps...>>
  = default;
  /// Holds the options.
  explicit LinearAttention(const LinearOptions<Maps...>& chosen) : options(chosen) {}

  /// The operator's name.
  static constexpr const char* name() { return "LinearAttention"; }

  /// The terms of the far field, one for each map, for arithmetic in T.
  template <class T>
  LinearTermsOf<T, Maps...> far_field() const {
    return LinearTermsOf<T, Maps...>::template of<Maps...>(options.denominator, options.causal,
                                                           options.alignment, options.combine);
  }

  /// A decoder: the same attention token by token, in constant memory.
  /// \throws as LinearDecoder's constructor does
  template <class T>
  [[nodiscard]] LinearDecoder<LinearAttention, T> decoder(const DecoderShape& shape) const {
    return {*this, shape};
  }
};

FOVEA_NAMESPACE_END
