// SPDX-License-Identifier: MIT
/// \file
/// The factorised random Synthesizer (Tay et al. 2021, section 3.2.4; MATHS.md, section 7): its
/// logits are the products of two sets of weights by position.
#pragma once

#include <utility>

#include "fovea/attention/synthesizer/form.hpp"
#include "fovea/core/members.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

/// out_i = sum_j softmax_j(<R1_i, R2_j>) v_j over the visible keys j: those before the key length
/// and, if causal, up to i. There is no factor 1/sqrt(r). R1 and R2 are the same for all sequences,
/// or there is one for each. The shapes are those of FactorisedSynthesizerInputs.
///
/// A row that sees no key is +0, and its lse is -infinity. What is not visible changes no bit. The
/// bits of a row do not depend on threads, batch, heads or strides.
/// Cost: 2 (r + Dv) flops for each visible pair; backward 2 (3 r + 2 Dv). Memory: that of
/// SoftmaxOperator; backward also [B, H, N, r] of each factor whose gradient is the sum over
/// several sequences.
class FactorisedSynthesizerAttention
    : public detail::SynthesizerForm<FactorisedSynthesizerAttention> {
 public:
  using SynthesizerForm::SynthesizerForm;

  /// The name that stands in error messages, tables and benchmarks.
  static constexpr const char* name() { return "FactorisedSynthesizerAttention"; }

  /// What the operator reads, for tensors of T.
  template <class T>
  using Inputs = FactorisedSynthesizerInputs<T>;
  /// What the forward pass saves: lse, if it has a tensor.
  template <class T>
  using Saved = SoftmaxSaved<T>;
  /// The gradients that the backward pass writes.
  template <class T>
  using Grads = FactorisedSynthesizerGrads<T>;
  /// The sizes of a call, whose width is r.
  using Shape = AttentionShape;
  /// The sizes of a decoder, whose width is r.
  using DecoderShape = fovea::DecoderShape;
  /// What a decoder takes for new tokens.
  template <class T>
  struct Tokens {
    ViewMember<const T> r2 = {};  ///< [1 or B, Hk, any, r]: all of the factor of the keys
    ViewMember<const T> v = {};   ///< [B, Hk, n, Dv]
  };
  /// How a decoder reads R1 and R2.
  template <class T>
  class DecoderForm;

  /// Bytes of scratch memory that `forward` takes with that many workers.
  template <class T>
  [[nodiscard]] Index workspace_bytes(const Shape& shape, Index workers = 1) const;
  /// Bytes of scratch memory that `backward` takes with that many workers, as SoftmaxOperator says,
  /// if both factors are those of all sequences.
  template <class T>
  [[nodiscard]] Index backward_workspace_bytes(const Shape& shape, Index workers = 1) const;

  /// The call as one of softmax attention.
  template <class T>
  static SoftmaxInputs<T> as_softmax(const Inputs<T>& in) {
    const Index batch = in.v.batch();
    return {detail::for_batch(in.r1, batch), detail::for_batch(in.r2, batch), in.v, in.key_lengths};
  }

 private:
  friend class ForwardCalls<FactorisedSynthesizerAttention>;
  friend class BackwardCalls<FactorisedSynthesizerAttention>;
  friend class detail::SynthesizerForm<FactorisedSynthesizerAttention>;

  template <class T>
  static void check_read(const Inputs<T>& in, const std::optional<Index>& /*sequence*/);

  template <class T>
  void run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved,
           const ExecutorRef& executor) const;

  /// Writes the gradients: the exact derivatives of `forward`, and 0 for what is not visible.
  template <class T>
  void run_backward(const Inputs<T>& inputs, const View<const T>& out, const Saved<T>& saved,
                    const View<const T>& d_out, const Grads<T>& grads,
                    const ExecutorRef& executor) const;
};

/// Rows of R1 are queries, and rows of R2 are keys.
template <class T>
class FactorisedSynthesizerAttention::DecoderForm {
 public:
  /// The sizes of the decoder of the softmax.
  static DecoderShape softmax_shape(const DecoderShape& shape) { return shape; }
  /// Bytes of scratch that it keeps.
  static Index memory_bytes() { return 0; }

  /// Checks what belongs to the keys of new tokens.
  /// \throws std::invalid_argument
  template <class In>
  static void check_keys(const DecoderShape& shape, const In& from, Index after);

  /// Checks what belongs to the last rows. \throws std::invalid_argument
  static void check_rows(const DecoderShape& shape, const Inputs<T>& in, Index /*rows*/,
                         Index after);

  /// The keys of new tokens.
  template <class In>
  static View<const T> keys(const DecoderShape& shape, const In& from, Index first, Index count);

  /// Gives the softmax the last `rows` of `after` rows.
  static void attach(const DecoderShape& shape, const Inputs<T>& in, Index rows, Index after,
                     SoftmaxInputs<T>& to, const ExecutorRef& /*executor*/);
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/factorised_synthesizer.inl.hpp"
#endif
