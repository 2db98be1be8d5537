// SPDX-License-Identifier: MIT
/// \file
/// The dense Synthesizer (Tay et al. 2021, section 3.2.1; MATHS.md, section 7): a network computes
/// a token's logits for all positions from this token alone.
#pragma once

#include <concepts>
#include <optional>
#include <span>

#include "fovea/attention/synthesizer/form.hpp"
#include "fovea/attention/synthesizer/hidden_layer.hpp"
#include "fovea/attention/synthesizer/key_columns.hpp"
#include "fovea/core/members.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

/// out_i = sum_j softmax_j(s_ij) v_j over the visible keys j: those before the key length and, if
/// causal, up to i. For each head, s_i = relu(x_i W1 + b1) W2 + b2, of whose Nmax columns the first
/// N are read. There is no factor 1/sqrt(D). Weights are shared by all sequences or given for each.
/// For shapes see DenseSynthesizerInputs; tensors are float or double.
///
/// Logits are computed tile by tile from the hidden layer: no N x N matrix is kept in memory. The
/// gradient of relu is 0 at 0. A row that sees no key is +0, and its lse is -infinity. What is not
/// visible (values and columns of W2 and b2 beyond the length, or Nmax > N) does not affect
/// results. The bits of a row do not depend on threads, batch, heads or strides. Cost: 2 (M + 1 +
/// Dv) flops for each visible pair and 2 D M for each row and head; backward 2 (3 (M + 1) + 2 Dv)
/// and 6 D M. Memory: that of SoftmaxOperator, [B, Hq, N, M + 1] and [1 or B, Hk, N, M + 1];
/// backward also their gradients for all sequences.
class DenseSynthesizerAttention
    : public detail::SynthesizerForm<DenseSynthesizerAttention, DenseSynthesizerShape> {
 public:
  using SynthesizerForm::SynthesizerForm;

  /// The operator's name.
  static constexpr const char* name() { return "DenseSynthesizerAttention"; }

  /// The inputs, for tensors of T.
  template <std::floating_point T>
  using Inputs = DenseSynthesizerInputs<T>;
  /// What the forward pass saves: lse, if it is given a tensor.
  template <std::floating_point T>
  using Saved = SoftmaxSaved<T>;
  /// The gradients, for tensors of T.
  template <std::floating_point T>
  using Grads = DenseSynthesizerGrads<T>;
  /// A decoder's inputs for new tokens.
  template <class T>
  struct Tokens {
    ViewMember<const T> w2 = {};  ///< [1 or B, Hk, M, any]: all of W2
    ViewMember<const T> b2 = {};  ///< [1 or B, Hk, 1, any], optional: all of b2
    ViewMember<const T> v = {};   ///< [B, Hk, n, Dv]
  };

  // Called by SynthesizerForm and SynthesizerLogits; documented there.
  /// \cond
  static DecoderShape softmax_shape(DecoderShape shape) {
    if (shape.width >= 0) ++shape.width;  // the decoder refuses a negative one
    return shape;
  }

  template <class T>
  static void check_read(const Inputs<T>& in, const std::optional<Index>& sequence);
  template <class In>
  static void check_keys(const DecoderShape& shape, const In& from, Index after);
  template <class T>
  static void check_rows(const DecoderShape& shape, const Inputs<T>& in, Index rows,
                         Index /*after*/);

  /// \endcond
 private:
  template <class T>
  static void check_first_weights(const Inputs<T>& in, Index batch);

  /// \param from inputs, or tokens of a decoder
  /// \param keys the least number of columns of W2   \param whose where it is from, for messages
  template <class In>
  static void check_second_weights(const In& from, Index batch, Index heads, Index keys,
                                   const char* whose);
};

namespace detail {

/// Queries are the hidden layer of the tokens; keys are columns of W2 and b2.
template <class T>
class SynthesizerLogits<DenseSynthesizerAttention, T> {
  using In = DenseSynthesizerInputs<T>;

 public:
  /// Has no rows, as in a decoder.
  SynthesizerLogits() = default;
  /// Allocates the memory. \param in checked; its tensors must outlive this object
  /// \param positions of the rows, which must outlive this object   \throws std::bad_alloc
  SynthesizerLogits(const In& in, std::span<const Range> positions, const ExecutorRef& executor,
                    ExecutorRef::Memory memory);

  /// The multiply-adds for queries and keys.
  double products() const { return hidden_->products(); }
  /// The inputs of softmax attention.
  const SoftmaxInputs<T>& inputs() const { return inputs_; }
  /// Computes queries and keys.
  void compute(const ExecutorRef& executor) {
    hidden_->compute(executor);
    keys_.put(positions_, executor);
  }
  /// The hidden layer. \pre there are rows
  HiddenLayer<T>& hidden() { return *hidden_; }

  /// Bytes of all memory.
  Index memory_bytes() const {
    return keys_.size_bytes() + (hidden_ ? hidden_->memory_bytes() : 0);
  }
  /// The keys of `count` tokens of a decoder, from position `first` on. \throws std::bad_alloc
  template <class From>
  View<const T> keys(const DecoderShape& shape, const From& from, Index first, Index count) {
    keys_ = {from.w2, from.b2, shape.key_heads, shape.width, count, ExecutorRef().memory()};
    const Range columns[] = {{first, first + count}};
    keys_.put(columns, {});
    return keys_.keys(shape.batch);
  }
  /// Computes the queries of the last rows. \throws std::bad_alloc
  void attach(const DecoderShape& /*shape*/, const In& in, Index /*rows*/, Index /*after*/,
              SoftmaxInputs<T>& to, const ExecutorRef& executor) {
    take_hidden(in, executor, ExecutorRef().memory());
    hidden_->compute(executor);
    to.q = hidden_->queries();
  }

 private:
  void take_hidden(const In& in, const ExecutorRef& executor, ExecutorRef::Memory memory) {
    hidden_.emplace(in);
    hidden_->take(worker_count(executor, hidden_->most_tasks()), memory);
  }

  std::optional<HiddenLayer<T>> hidden_;
  KeyColumns<T> keys_;
  std::span<const Range> positions_;
  SoftmaxInputs<T> inputs_;
};

template <class T>
SynthesizerLogits<DenseSynthesizerAttention, T>::SynthesizerLogits(const In& in,
                                                                   std::span<const Range> positions,
                                                                   const ExecutorRef& executor,
                                                                   ExecutorRef::Memory memory)
    : positions_(positions) {
  // Scratch separates queries and keys, whose rows would otherwise map to the same cache sets.
  take_hidden(in, executor, memory);
  keys_ = {in.w2, in.b2, in.w2.heads(), in.w2.rows(), in.v.rows(), memory};
  inputs_ = {hidden_->queries(), keys_.keys(in.v.batch()), in.v, in.key_lengths};
}

/// The gradients of the dense Synthesizer: the gradients of the hidden layer and of the columns are
/// computed in separate memory.
template <class T>
class SynthesizerGradients<DenseSynthesizerAttention, T> {
 public:
  /// Allocates the memory. \throws std::bad_alloc
  SynthesizerGradients(const DenseSynthesizerInputs<T>& in, const DenseSynthesizerGrads<T>& grads,
                       ExecutorRef::Memory memory)
      : grads_(grads) {
    const auto take = [&](Index heads, Workspace& room) {
      const Shape shape = {in.v.batch(), heads, in.v.rows(), in.w1.width() + 1};
      room = memory.take(shape[0] * shape[1] * shape[2],
                         KeyColumns<T>::row_of(in.w1.width()) * Index{sizeof(T)});
      return KeyColumns<T>::rows_of(room, shape);
    };
    const bool of_first = !grads.x.empty() || !grads.w1.empty() || !grads.b1.empty();
    if (of_first) wanted_.q = take(in.w1.heads(), queries_);
    if (!grads.w2.empty() || !grads.b2.empty()) wanted_.k = take(in.v.heads(), keys_);
    wanted_.v = grads.v;
  }

  /// The requested gradients of softmax attention.
  const SoftmaxGrads<T>& wanted() const { return wanted_; }
  /// Computes the form's gradients from them.
  void finish(SynthesizerLogits<DenseSynthesizerAttention, T>& logits,
              const ExecutorRef& executor) {
    logits.hidden().finish(wanted_.q, grads_, executor);
    KeyColumns<T>::finish(wanted_.k, grads_, executor);
  }

 private:
  DenseSynthesizerGrads<T> grads_;
  SoftmaxGrads<T> wanted_;
  Workspace queries_;
  Workspace keys_;
};

}  // namespace detail

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/dense_synthesizer.inl.hpp"
#endif
