// SPDX-License-Identifier: MIT
/// \file
/// FMM attention: a near field, softmax over a band, and a low-rank far field (FMMformer; Nguyen et
/// al. 2021; MATHS.md, section 4).
#pragma once

#include "fovea/attention/fmm/passes.hpp"
#include "fovea/attention/linear/decoder.hpp"
#include "fovea/attention/linear/operator.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of FmmAttention with the terms `Terms`, each a feature map or DeltaRule of one.
template <class... Terms>
struct FmmOptions {
  /// The near field's keys; the default is only the query's own position.
  Band band = {};
  /// If true, row i sees no key after its own position, whatever band.right is. The default is true
  /// if a term is a DeltaRule, which must be causal, and otherwise false.
  bool causal = (LinearTerm<Terms>::kIsDelta || ...);
  /// Scale of the near field's logits; the default is 1/sqrt(D).
  std::optional<double> scale = {};
  /// Position of query row 0; by default the queries end where the rows of k end.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// If true, a row is divided by w1 + r w2, the sum of its weights if each of the r terms sums to
  /// 1. (Joint maps are one term, and for the mean r is 1.)
  bool normalise_rows = false;
  /// The policy for far-field denominators that vanish or change sign. Required if a feature map
  /// can be negative; otherwise the default is Denominator::propagate.
  DenominatorOption<Terms...> denominator = {};
  /// How the far field's terms are combined; the default is their sum. A delta rule counts as one
  /// term of the mean, and is added to joint maps.
  CombineMaps combine = CombineMaps::sum;
};

/// FMM attention: out = w1 near + w2 (sum of the terms). Here near_i is softmax attention over the
/// visible keys of [i - left, i + right] (eq. 4), and a term is linear attention with a feature map
/// (eq. 10). The weights are w1 = sigmoid(near_logits) and w2 = sigmoid(far_logits) (eq. 12); the
/// logits are inputs: one for each head, for each value column, or a single one. Missing logits
/// mean the weight 1, so without both the formula is eq. 10.
/// One term may be DeltaRule<Map>, fast weights as in DeltaRuleAttention: then the input beta is
/// read, and the operator must be causal.
/// The far field sums over all visible keys, including the band. Shapes, key lengths, packed
/// sequences and heads are as in LinearAttention. A row that sees no key is +0.
/// Cost: LocalAttention's plus that of the terms. Blocks of rows stay in cache from one part to the
/// next.
template <class... Terms>
class FmmAttention : public LinearOperator<FmmAttention<Terms...>> {
  static_assert(
      sizeof...(Terms) > 0 && (FeatureMap<typename LinearTerm<Terms>::Map> && ...),
      "fovea: FmmAttention requires feature maps, such as EluPlusOne, or a DeltaRule with one");

 public:
  /// Whether a term is a DeltaRule, which reads the input beta.
  static constexpr bool kHasBeta = (LinearTerm<Terms>::kIsDelta || ...);
  /// Whether a term is a feature map.
  static constexpr bool kHasSums = (!LinearTerm<Terms>::kIsDelta || ...);
  /// The operator has a near field.
  static constexpr bool kHasNear = true;
  /// The forward pass's implementation.
  template <class T>
  using Passes = FmmPasses<T, kHasSums, kHasBeta>;
  /// The backward pass's implementation.
  template <class T>
  using BackwardPasses = FmmBackwardPasses<T, kHasSums, kHasBeta>;

  /// The inputs, for tensors of T.
  template <class T>
  using Inputs = std::conditional_t<kHasBeta, FmmDeltaInputs<T>, FmmInputs<T>>;
  /// The gradients, for tensors of T.
  template <class T>
  using Grads = std::conditional_t<kHasBeta, FmmDeltaGrads<T>, FmmGrads<T>>;

  /// What the forward pass saves: the near field's output and lse.
  template <class T>
  using Saved = FmmSaved<T>;

  /// A decoder's new tokens: k and v, and beta with a delta rule.
  template <class T>
  using Tokens = std::conditional_t<kHasBeta, DeltaTokens<T>, KeyValueTokens<T>>;

  FmmOptions<Terms...> options;  ///< checked at every call

  /// Default options. Only available if no denominator must be chosen.
  FmmAttention() requires std::default_initializable<DenominatorOption<Terms...>>
  = default;
  /// Holds the options.
  explicit FmmAttention(const FmmOptions<Terms...>& chosen) : options(chosen) {}

  /// The operator's name.
  static constexpr const char* name() { return "FmmAttention"; }

  /// The near field alone, as an operator.
  LocalAttention near_field() const { return settings<float>().near_field(); }

  /// The terms of the far field, for arithmetic in T.
  template <class T>
  LinearTermsOf<T, Terms...> far_field() const {
    return LinearTermsOf<T, Terms...>::template of<Terms...>(options.denominator, options.causal,
                                                             options.alignment, options.combine);
  }

  /// The operator's settings that the passes read, for arithmetic in C.
  template <class C>
  FmmSettings<C, kHasSums, kHasBeta> settings() const {
    return {{name(), far_field<C>()}, options.band, options.scale, options.normalise_rows};
  }

  /// A decoder: the same attention token by token, in constant memory.
  /// \throws as LinearDecoder's constructor does
  template <class T>
  [[nodiscard]] LinearDecoder<FmmAttention, T> decoder(const DecoderShape& shape) const {
    return {*this, shape};
  }
};

/// The bands of the paper's models as in its code, |i - j| < k: here k = 5.
inline constexpr Band kBand5 = Band::half_width(5);
/// The band |i - j| < 20.
inline constexpr Band kBand20 = Band::half_width(20);
/// The band |i - j| < 30.
inline constexpr Band kBand30 = Band::half_width(30);

/// The paper's model with one feature map (Tables 1 and 2); `FmmOneKernel{{.band = kBand5}}` uses
/// the band |i - j| < 5.
using FmmOneKernel = FmmAttention<EluPlusOne>;
/// The paper's model with two feature maps: `FmmTwoKernels{{.band = kBand5}}` is "2-kernel +
/// Band5".
using FmmTwoKernels = FmmAttention<EluPlusOne, EluMinusPlusOne>;
/// The paper's model with three feature maps; the third is from the authors' code.
using FmmThreeKernels = FmmAttention<EluPlusOne, EluMinusPlusOne, TanhPlusOne>;
/// The paper's fast-weight model: its only term is a delta rule.
using FmmFastWeight = FmmAttention<DeltaRule<EluPlusOne>>;
/// The paper's fast-weight model with two feature maps, the first with the delta rule.
using FmmTwoKernelsFastWeight = FmmAttention<DeltaRule<EluPlusOne>, EluMinusPlusOne>;

FOVEA_NAMESPACE_END
