// SPDX-License-Identifier: MIT
/// \file
/// The random Synthesizer (Tay et al. 2021, section 3.2.2; MATHS.md, section 7): its logits are
/// learned weights, one for each pair of positions.
#pragma once

#include "fovea/attention/synthesizer/form.hpp"
#include "fovea/core/members.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

/// out_i = sum_j softmax_j(R_ij) v_j over the visible keys j: those before the key length and, if
/// causal, up to i. R [Hq, N, N] is used in place, as the bias of full attention whose queries and
/// keys have width 0. It is shared by all sequences or given for each. For shapes see
/// RandomSynthesizerInputs; R has the arithmetic type.
///
/// A row that sees no key is +0, and its lse is -infinity. What is not visible does not affect
/// results. The bits of a row do not depend on threads, batch, heads or strides. Cost: 2 Dv flops
/// for each visible pair; backward 4 Dv, if the gradient of R is requested. Memory: that of
/// SoftmaxOperator.
class RandomSynthesizerAttention : public detail::SynthesizerForm<RandomSynthesizerAttention> {
 public:
  using SynthesizerForm::SynthesizerForm;

  /// The operator's name.
  static constexpr const char* name() { return "RandomSynthesizerAttention"; }

  /// The inputs, for tensors of T.
  template <class T>
  using Inputs = RandomSynthesizerInputs<T>;
  /// The gradients, for tensors of T.
  template <class T>
  using Grads = RandomSynthesizerGrads<T>;
  /// A decoder's inputs for new tokens.
  template <class T>
  struct Tokens {
    ViewMember<const T> v = {};  ///< [B, Hk, n, Dv]
  };

  // Called by SynthesizerForm and SynthesizerLogits; documented there.
  /// \cond
  static DecoderShape softmax_shape(DecoderShape shape) {
    shape.width = 0;
    return shape;
  }
  template <class T>
  static void attach(const Inputs<T>& in, Index batch, Index first, Index rows,
                     SoftmaxInputs<T>& to) {
    to.q = detail::no_width<T>(batch, in.r.heads(), rows);
    to.bias = detail::part_of(in.r, 2, first, rows);
  }
  template <class T, class From>
  static View<const T> keys(const From& /*from*/, Index batch, Index heads, Index /*first*/,
                            Index count) {
    return detail::no_width<T>(batch, heads, count);
  }
  template <class T>
  static SoftmaxGrads<T> as_softmax(const Grads<T>& grads) {
    SoftmaxGrads<T> made;
    made.v = grads.v;
    made.bias = grads.r;
    return made;
  }

  template <class T>
  static void check_read(const Inputs<T>& in, const std::optional<Index>& sequence);
  template <class In>
  static void check_keys(const DecoderShape& /*shape*/, const In& /*from*/, Index /*after*/) {}
  template <class T>
  static void check_rows(const DecoderShape& shape, const Inputs<T>& in, Index /*rows*/,
                         Index after);
  /// \endcond
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/random_synthesizer.inl.hpp"
#endif
