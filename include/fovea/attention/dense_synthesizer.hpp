// SPDX-License-Identifier: MIT
/// \file
/// The dense Synthesizer (Tay et al. 2021, section 3.2.1; MATHS.md, section 7): each token makes
/// the logits of all positions by a network of its own.
#pragma once

#include <concepts>
#include <utility>

#include "fovea/attention/synthesizer/form.hpp"
#include "fovea/attention/synthesizer/hidden_layer.hpp"
#include "fovea/attention/synthesizer/key_columns.hpp"
#include "fovea/core/members.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

/// out_i = sum_j softmax_j(s_ij) v_j over the visible keys j: those before the key length and, if
/// causal, up to i. s_i = relu(x_i W1 + b1) W2 + b2, of which the first N of Nmax columns are read,
/// for each head. There is no factor 1/sqrt(D). Weights are the same for all sequences, or there
/// are some for each. The shapes are those of DenseSynthesizerInputs, of float or double.
///
/// Logits are computed tile by tile from the hidden layer: no N x N matrix is kept in memory. The
/// gradient of relu is 0 at 0. A row that sees no key is +0, and its lse is -infinity. What is not
/// visible changes no bit: values and columns of W2 and b2 beyond the length, or Nmax > N. The bits
/// of a row do not depend on threads, batch, heads or strides.
/// Cost: 2 (M + 1 + Dv) flops for each visible pair and 2 D M for each row and head; backward 2 (3
/// (M + 1) + 2 Dv) and 6 D M. Memory: that of SoftmaxOperator, [B, Hq, N, M + 1] and [1 or B, Hk,
/// N, M + 1]; backward also the gradients of these, of all sequences.
class DenseSynthesizerAttention : public detail::SynthesizerForm<DenseSynthesizerAttention> {
 public:
  using SynthesizerForm::SynthesizerForm;

  /// The name that stands in error messages, tables and benchmarks.
  static constexpr const char* name() { return "DenseSynthesizerAttention"; }

  /// What the operator reads, for tensors of T.
  template <std::floating_point T>
  using Inputs = DenseSynthesizerInputs<T>;
  /// What the forward pass saves: lse, if it has a tensor.
  template <std::floating_point T>
  using Saved = SoftmaxSaved<T>;
  /// The gradients that the backward pass writes.
  template <std::floating_point T>
  using Grads = DenseSynthesizerGrads<T>;
  /// The sizes of a call.
  using Shape = DenseSynthesizerShape;
  /// The sizes of a decoder, whose width is M.
  using DecoderShape = fovea::DecoderShape;
  /// What a decoder takes for new tokens.
  template <class T>
  struct Tokens {
    ViewMember<const T> w2 = {};  ///< [1 or B, Hk, M, any]: all of W2
    ViewMember<const T> b2 = {};  ///< [1 or B, Hk, 1, any], optional: all of b2
    ViewMember<const T> v = {};   ///< [B, Hk, n, Dv]
  };
  /// How a decoder reads the weights.
  template <class T>
  class DecoderForm;

  /// Bytes of scratch memory that `forward` takes with that many workers, at most: weights of their
  /// own for each sequence take the most.
  template <class T>
  [[nodiscard]] Index workspace_bytes(const Shape& shape, Index workers = 1) const;
  /// Bytes of scratch memory that `backward` takes with that many workers, at most.
  template <class T>
  [[nodiscard]] Index backward_workspace_bytes(const Shape& shape, Index workers = 1) const;

 private:
  friend class ForwardCalls<DenseSynthesizerAttention>;
  friend class BackwardCalls<DenseSynthesizerAttention>;
  friend class detail::SynthesizerForm<DenseSynthesizerAttention>;

  static AttentionShape of_softmax(const Shape& shape) {
    AttentionShape made = shape;
    made.width = shape.hidden + 1;
    return made;
  }

  template <class T>
  static void check_read(const Inputs<T>& in, const std::optional<Index>& sequence);

  template <class T>
  static void check_first_weights(const Inputs<T>& in, Index batch);

  /// \param from inputs, or tokens of a decoder
  /// \param keys the least number of columns of W2   \param whose rows these are
  template <class In>
  static void check_second_weights(const In& from, Index batch, Index heads, Index keys,
                                   const char* whose);

  /// The multiply-adds of the hidden layer.
  template <class T>
  static double hidden_products(const Inputs<T>& in);

  /// The call as one of softmax attention, with queries and keys that are yet to be computed.
  template <class T>
  static SoftmaxInputs<T> as_softmax(const Inputs<T>& in, detail::HiddenLayer<T>& hidden);

  /// An executor for a pass of so many multiply-adds for each pair.
  template <class T>
  auto threads_for(const Inputs<T>& in, Index of_pair, const ExecutorRef& executor) const;

  template <class T>
  void run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved,
           const ExecutorRef& executor) const;

  /// Writes the gradients: the exact derivatives of `forward`, and 0 for what is not visible.
  template <class T>
  void run_backward(const Inputs<T>& inputs, const View<const T>& out, const Saved<T>& saved,
                    const View<const T>& d_out, const Grads<T>& grads,
                    const ExecutorRef& executor) const;
};

/// The hidden layer of the last rows makes queries, and columns of W2 and b2 are keys.
template <class T>
class DenseSynthesizerAttention::DecoderForm {
 public:
  /// The sizes of the decoder of the softmax.
  static DecoderShape softmax_shape(DecoderShape shape) {
    if (shape.width >= 0) ++shape.width;  // the decoder refuses a negative one
    return shape;
  }
  /// Bytes of scratch that it keeps.
  Index memory_bytes() const;

  /// Checks what belongs to the keys of new tokens.
  /// \throws std::invalid_argument
  template <class In>
  static void check_keys(const DecoderShape& shape, const In& from, Index after);

  /// Checks what belongs to the last rows. \throws std::invalid_argument
  static void check_rows(const DecoderShape& shape, const Inputs<T>& in, Index rows,
                         Index /*after*/);

  /// The keys of new tokens.
  /// \throws std::bad_alloc
  template <class In>
  View<const T> keys(const DecoderShape& shape, const In& from, Index first, Index count);

  /// Gives the softmax the hidden layer of the last rows.
  /// \throws std::bad_alloc
  void attach(const DecoderShape& shape, const Inputs<T>& in, Index rows, Index /*after*/,
              SoftmaxInputs<T>& to, const ExecutorRef& executor);

 private:
  detail::KeyColumns<T> keys_;
  std::optional<detail::HiddenLayer<T>> hidden_;
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/dense_synthesizer.inl.hpp"
#endif
