// SPDX-License-Identifier: MIT
/// \file
/// FMM attention: a near field, softmax over a band, and a far field of low rank (FMMformer; Nguyen
/// et al. 2021; MATHS.md, section 4).
#pragma once

#include "fovea/attention/fmm/backward.hpp"
#include "fovea/attention/linear/decoder.hpp"
#include "fovea/attention/linear/operator.hpp"

FOVEA_NAMESPACE_BEGIN

/// The keys of the near field: `left` before the query and `right` after it, both inclusive.
struct Band {
  Index left = 0;
  Index right = 0;

  /// |i - j| < k, the authors' code: 2 k - 1 keys, k of them under a causal operator.
  static constexpr Band half_width(Index k) { return {k - 1, k - 1}; }

  /// k keys in total, of an even number one more before the query.
  static constexpr Band total(Index k) { return {k / 2, (k + 1) / 2 - 1}; }

  /// k keys in total, the last of them the query's own position.
  static constexpr Band causal_total(Index k) { return {k - 1, 0}; }
};

/// Options of FmmAttention.
template <class... Terms>
struct FmmOptions {
  Band near = {};
  /// Keys after the query's position are invisible, whatever near.right says.
  bool causal = (LinearTerm<Terms>::kIsDelta || ...);
  /// Of the near field's logits; 1 / sqrt(D) if not set.
  std::optional<double> scale = {};
  /// The position of query row 0 if Nq != Nk.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  /// Divides a row by w1 + r w2, the sum of its weights if each of the r terms sums to 1.
  bool normalise_rows = false;
  /// Has to be given if a map may be negative.
  DenominatorOption<Terms...> denominator = {};
};

/// out = w1 near + w2 (sum of the terms), where near_i = softmax over the visible keys of
/// [i - left, i + right] (eq. 4), a term is linear attention with a feature map (eq. 10), and
/// w = sigmoid(logit) (eq. 12): `near_logits` and `far_logits` of the inputs, one per head, channel
/// or in all; what is not given has the weight 1, so without both this is eq. 10.
/// One of the terms may be DeltaRule<Map>, fast weights as in DeltaRuleAttention: then beta is
/// read, and the operator is causal.
/// The far field sums over all visible keys, those of the band too. Shapes, lengths, packing and
/// heads as in LinearAttention. A row that sees no key is +0.
/// Cost: that of LocalAttention and of the terms; blocks of rows stay in cache from one to the
/// other.
template <class... Terms>
class FmmAttention : public LinearOperator<FmmAttention<Terms...>> {
  static_assert(sizeof...(Terms) > 0 && (FeatureMap<typename LinearTerm<Terms>::Map> && ...));

 public:
  static constexpr bool kHasBeta = (LinearTerm<Terms>::kIsDelta || ...);
  static constexpr bool kHasNear = true;
  template <class T>
  using NearField = NearBlocks<T>;
  template <class T>
  using NearDecoder = Decoder<LocalAttention, T>;
  static constexpr Index kTerms = sizeof...(Terms);

  template <class T>
  using Inputs = std::conditional_t<kHasBeta, FmmDeltaInputs<T>, FmmInputs<T>>;
  template <class T>
  using Grads = std::conditional_t<kHasBeta, FmmDeltaGrads<T>, FmmGrads<T>>;

  /// What a decoder takes of new tokens.
  template <class T>
  using Tokens = std::conditional_t<kHasBeta, DeltaTokens<T>, KeyValueTokens<T>>;

  FmmOptions<Terms...> options;

  FmmAttention() requires std::default_initializable<DenominatorOption<Terms...>>
  = default;
  explicit FmmAttention(const FmmOptions<Terms...>& chosen) : options(chosen) {}

  static constexpr const char* name() { return "FmmAttention"; }

  /// The near field alone.
  LocalAttention near() const {
    return LocalAttention({.left = options.near.left,
                           .right = options.causal ? 0 : options.near.right,
                           .scale = options.scale,
                           .alignment = options.alignment});
  }

  /// The far field, for arithmetic in T.
  template <class T>
  LinearTermsOf<T, Terms...> far() const {
    return LinearTermsOf<T, Terms...>::template of<Terms...>(options.denominator, options.causal,
                                                             options.alignment);
  }

  template <class T>
  void check_options() const {
    check_window(name(), {options.near.left, options.near.right});
    check_softmax_options<T>(name(), near().softmax_options());
    check_denominator<T>(name(), options.denominator);
    if (kHasBeta && !options.causal) refuse(name(), "causal", "false", "true: of the delta rule");
  }

  /// Bytes of scratch of `backward` with that many workers.
  template <class T>
  [[nodiscard]] Index backward_workspace_bytes(const AttentionShape& shape,
                                               Index workers = 1) const {
    return FmmBackward<T, LinearTermsOf<T, Terms...>>::workspace_bytes(shape, far<T>(), near(),
                                                                       workers);
  }

  /// The same attention for tokens that come one after the other: constant memory.
  /// \throws as the constructor of LinearDecoder
  template <class T>
  [[nodiscard]] LinearDecoder<FmmAttention, T> decoder(const DecoderShape& shape) const {
    return {*this, shape};
  }

  /// How near and far field are weighted.
  template <class T>
  FmmBlend<T> blend(const LinearFamilyInputs<T>& inputs) const {
    return {inputs, kTerms, options.normalise_rows};
  }

  /// \throws std::invalid_argument logits of another shape, or NaN, or that leave nothing to
  /// normalise
  template <class T>
  void check_logits(const LinearFamilyInputs<T>& inputs) const {
    check_blend_logits(name(), "near_logits", inputs.near_logits, inputs);
    check_blend_logits(name(), "far_logits", inputs.far_logits, inputs);
    if (!options.normalise_rows) return;
    const FmmBlend<T> blend = this->blend(inputs);
    for (Index h = 0; h < inputs.q.heads(); ++h) {
      for (Index c = 0; c < inputs.v.width(); ++c) {
        if (blend.normaliser(h, c) > 0) continue;
        refuse(name(), "the weights of head " + std::to_string(h), "all 0",
               "one above 0, since rows are normalised");
      }
    }
  }

 private:
  friend class LinearOperator<FmmAttention>;

  template <class T, class E>
  void compute(const LinearFamilyInputs<T>& inputs, const View<T>& out, E&& executor) const {
    const FarWeights<Compute<T>> weights = blend(inputs).weights();
    LinearForward(inputs, far<Compute<T>>(), weights, out, NearBlocks<T>(inputs, near()))
        .run(executor);
  }

  template <class T, class E>
  void compute_gradients(const LinearFamilyInputs<T>& inputs, const View<const T>& d_out,
                         const LinearFamilyGrads<T>& grads, E&& executor) const {
    const LocalAttention near_field = near();
    const FmmBlend<T> blend = this->blend(inputs);
    FmmBackward(inputs, far<T>(), near_field, blend, d_out, grads).run(executor);
  }
};

/// The bands of the paper's models, by its code: |i - j| < k.
inline constexpr Band kBand5 = Band::half_width(5);
inline constexpr Band kBand20 = Band::half_width(20);
inline constexpr Band kBand30 = Band::half_width(30);

/// The paper's models (Tables 1 and 2): FmmTwoKernels{{.near = kBand5}} is "2-kernel + Band5".
using FmmOneKernel = FmmAttention<EluPlusOne>;
using FmmTwoKernels = FmmAttention<EluPlusOne, EluMinusPlusOne>;
using FmmThreeKernels = FmmAttention<EluPlusOne, EluMinusPlusOne, TanhPlusOne>;
/// Its fast-weight models: the first term by the delta rule.
using FmmFastWeight = FmmAttention<DeltaRule<EluPlusOne>>;
using FmmTwoKernelsFastWeight = FmmAttention<DeltaRule<EluPlusOne>, EluMinusPlusOne>;

FOVEA_NAMESPACE_END
