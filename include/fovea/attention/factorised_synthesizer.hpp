// SPDX-License-Identifier: MIT
/// \file
/// The factorised random Synthesizer (Tay et al. 2021, section 3.2.4; MATHS.md, section 7): its
/// logits are products of learned rows, one for each query and key position.
#pragma once

#include "fovea/attention/synthesizer/form.hpp"
#include "fovea/core/members.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

/// out_i = sum_j softmax_j(<R1_i, R2_j>) v_j over the visible keys j: those before the key length
/// and, if causal, up to i. There is no factor 1/sqrt(r). R1 and R2 are shared by all sequences or
/// given for each; they are the queries and keys of full attention. For shapes see
/// FactorisedSynthesizerInputs.
///
/// A row that sees no key is +0, and its lse is -infinity. What is not visible does not affect
/// results. The bits of a row do not depend on threads, batch, heads or strides. Cost: 2 (r + Dv)
/// flops for each visible pair; backward 2 (3 r + 2 Dv). Memory: that of SoftmaxOperator; backward
/// also [B, H, N, r] for each factor that several sequences share.
class FactorisedSynthesizerAttention
    : public detail::SynthesizerForm<FactorisedSynthesizerAttention> {
 public:
  using SynthesizerForm::SynthesizerForm;

  /// The operator's name.
  static constexpr const char* name() { return "FactorisedSynthesizerAttention"; }

  /// The inputs, for tensors of T.
  template <class T>
  using Inputs = FactorisedSynthesizerInputs<T>;
  /// The gradients, for tensors of T.
  template <class T>
  using Grads = FactorisedSynthesizerGrads<T>;
  /// A decoder's inputs for new tokens.
  template <class T>
  struct Tokens {
    ViewMember<const T> r2 = {};  ///< [1 or B, Hk, any, r]: the complete key factor
    ViewMember<const T> v = {};   ///< [B, Hk, n, Dv]
  };

  // Called by SynthesizerForm and SynthesizerLogits; documented there.
  /// \cond
  template <class T>
  static void attach(const Inputs<T>& in, Index batch, Index first, Index rows,
                     SoftmaxInputs<T>& to) {
    to.q = detail::for_batch(detail::part_of(in.r1, 2, first, rows), batch);
  }
  template <class T, class From>
  static View<const T> keys(const From& from, Index batch, Index /*heads*/, Index first,
                            Index count) {
    return detail::for_batch(detail::part_of(from.r2, 2, first, count), batch);
  }
  template <class T>
  static SoftmaxGrads<T> as_softmax(const Grads<T>& grads) {
    return {grads.r1, grads.r2, grads.v};
  }

  template <class T>
  static void check_read(const Inputs<T>& in, const std::optional<Index>& /*sequence*/);
  template <class In>
  static void check_keys(const DecoderShape& shape, const In& from, Index after);
  template <class T>
  static void check_rows(const DecoderShape& shape, const Inputs<T>& in, Index /*rows*/,
                         Index after);
  /// \endcond
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/factorised_synthesizer.inl.hpp"
#endif
