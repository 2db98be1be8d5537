// SPDX-License-Identifier: MIT
/// \file
/// The random Synthesizer (Tay et al. 2021, section 3.2.2; MATHS.md, section 7): its logits are
/// weights of their own, one for each pair of positions.
#pragma once

#include "fovea/attention/synthesizer/form.hpp"
#include "fovea/core/members.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

/// out_i = sum_j softmax_j(R_ij) v_j over the visible keys j: those before the key length and, if
/// causal, up to i. R [Hq, N, N] is read where it lies, and nothing is multiplied to get the
/// logits. It is one for all sequences, or one for each. The shapes are those of
/// RandomSynthesizerInputs; R has the type of the arithmetic.
///
/// A row that sees no key is +0, and its lse is -infinity. What is not visible changes no bit. The
/// bits of a row do not depend on threads, batch, heads or strides.
/// Cost: 2 Dv flops for each visible pair; backward 4 Dv, if the gradient of R is asked for.
/// Memory: that of SoftmaxOperator.
class RandomSynthesizerAttention : public detail::SynthesizerForm<RandomSynthesizerAttention> {
 public:
  using SynthesizerForm::SynthesizerForm;

  /// The name that stands in error messages, tables and benchmarks.
  static constexpr const char* name() { return "RandomSynthesizerAttention"; }

  /// What the operator reads, for tensors of T.
  template <class T>
  using Inputs = RandomSynthesizerInputs<T>;
  /// What the forward pass saves: lse, if it has a tensor.
  template <class T>
  using Saved = SoftmaxSaved<T>;
  /// The gradients that the backward pass writes.
  template <class T>
  using Grads = RandomSynthesizerGrads<T>;
  /// The sizes of a call, whose width is 0.
  using Shape = AttentionShape;
  /// The sizes of a decoder, whose width is not read.
  using DecoderShape = fovea::DecoderShape;
  /// What a decoder takes for new tokens.
  template <class T>
  struct Tokens {
    ViewMember<const T> v = {};  ///< [B, Hk, n, Dv]
  };
  /// How a decoder reads R.
  template <class T>
  class DecoderForm;

  /// Bytes of scratch memory that `forward` takes with that many workers.
  template <class T>
  [[nodiscard]] Index workspace_bytes(const Shape& shape, Index workers = 1) const;
  /// Bytes of scratch memory that `backward` takes with that many workers, as SoftmaxOperator says.
  template <class T>
  [[nodiscard]] Index backward_workspace_bytes(const Shape& shape, Index workers = 1) const;

  /// The call as one of softmax attention without products, whose bias is R.
  template <class T>
  static SoftmaxInputs<T> as_softmax(const Inputs<T>& in) {
    const Index batch = in.v.batch();
    SoftmaxInputs<T> made{detail::no_width<T>(batch, in.r.heads(), in.v.rows()),
                          detail::no_width<T>(batch, in.v.heads(), in.v.rows()), in.v,
                          in.key_lengths};
    made.bias = in.r;
    return made;
  }

 private:
  friend class ForwardCalls<RandomSynthesizerAttention>;
  friend class BackwardCalls<RandomSynthesizerAttention>;
  friend class detail::SynthesizerForm<RandomSynthesizerAttention>;

  static Shape without_width(Shape shape) {
    shape.width = 0;
    return shape;
  }

  template <class T>
  static void check_read(const Inputs<T>& in, const std::optional<Index>& sequence);

  template <class T>
  void run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved,
           const ExecutorRef& executor) const;

  /// Writes the gradients: the exact derivatives of `forward`, and 0 for what is not visible.
  template <class T>
  void run_backward(const Inputs<T>& inputs, const View<const T>& out, const Saved<T>& saved,
                    const View<const T>& d_out, const Grads<T>& grads,
                    const ExecutorRef& executor) const;
};

/// The rows of R of the last positions are a bias; keys have no width.
template <class T>
class RandomSynthesizerAttention::DecoderForm {
 public:
  /// The sizes of the decoder of the softmax.
  static DecoderShape softmax_shape(DecoderShape shape) {
    shape.width = 0;
    return shape;
  }
  /// Bytes of scratch that it keeps.
  static Index memory_bytes() { return 0; }

  /// Checks what belongs to the keys of new tokens: nothing.
  template <class In>
  static void check_keys(const DecoderShape& /*shape*/, const In& /*from*/, Index /*after*/);

  /// Checks what belongs to the last rows. \throws std::invalid_argument
  static void check_rows(const DecoderShape& shape, const Inputs<T>& in, Index /*rows*/,
                         Index after);

  /// The keys of new tokens.
  template <class In>
  static View<const T> keys(const DecoderShape& shape, const In& /*from*/, Index /*first*/,
                            Index count);

  /// Gives the softmax the last `rows` of `after` rows.
  static void attach(const DecoderShape& shape, const Inputs<T>& in, Index rows, Index after,
                     SoftmaxInputs<T>& to, const ExecutorRef& /*executor*/);
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/random_synthesizer.inl.hpp"
#endif
