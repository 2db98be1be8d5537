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
  [[nodiscard]] Index workspace_bytes(const Shape& shape, Index workers = 1) const {
    using Hidden = detail::HiddenLayer<T>;
    return softmax().template forward_bytes<T>(of_softmax(shape), workers) +
           Hidden::query_bytes(shape) + Hidden::key_bytes(shape) +
           workers * Hidden::worker_bytes(shape.width, shape.hidden);
  }
  /// Bytes of scratch memory that `backward` takes with that many workers, at most.
  template <class T>
  [[nodiscard]] Index backward_workspace_bytes(const Shape& shape, Index workers = 1) const {
    using Hidden = detail::HiddenLayer<T>;
    return softmax().template backward_bytes<T>(of_softmax(shape), workers) +
           2 * Hidden::query_bytes(shape) + 2 * Hidden::key_bytes(shape) +
           workers * Hidden::worker_bytes(shape.width, shape.hidden);
  }

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
  static void check_read(const Inputs<T>& in, const std::optional<Index>& sequence) {
    detail::check_synthesizer_lengths(name(), in);
    const Index batch = in.v.batch();
    detail::check_extent(name(), "x", in.x.shape(), 0, batch, "the batch of v");
    detail::check_extent(name(), "x", in.x.shape(), 2, in.v.rows(), "the rows of v");
    check_first_weights(in, batch);
    check_second_weights(in, batch, in.v.heads(), sequence.value_or(in.v.rows()),
                         sequence ? "the rows of the sequence" : "the rows of v");
    detail::check_extent(name(), "w2", in.w2.shape(), 2, in.w1.width(), "the width of w1");
    detail::check_head_groups(name(), "w1", in.w1, in.v);
  }

  template <class T>
  static void check_first_weights(const Inputs<T>& in, Index batch) {
    detail::check_weight_batch(name(), "w1", in.w1, batch);
    if (in.x.heads() != 1) {
      detail::check_extent(name(), "x", in.x.shape(), 1, in.w1.heads(), "the heads of w1, or 1");
    }
    detail::check_extent(name(), "w1", in.w1.shape(), 2, in.x.width(), "the width of x");
    if (in.b1.is_none()) return;
    detail::check_extent(name(), "b1", in.b1.shape(), 0, in.w1.batch(), "the batch of w1");
    detail::check_extent(name(), "b1", in.b1.shape(), 1, in.w1.heads(), "the heads of w1");
    detail::check_extent(name(), "b1", in.b1.shape(), 2, 1, "one row of biases");
    detail::check_extent(name(), "b1", in.b1.shape(), 3, in.w1.width(), "the width of w1");
  }

  /// \param from inputs, or tokens of a decoder
  /// \param keys the least number of columns of W2   \param whose rows these are
  template <class In>
  static void check_second_weights(const In& from, Index batch, Index heads, Index keys,
                                   const char* whose) {
    detail::check_weight_batch(name(), "w2", from.w2, batch);
    detail::check_extent(name(), "w2", from.w2.shape(), 1, heads, "the heads of v");
    if (from.w2.width() < keys) {
      refuse_extent(name(), "w2", from.w2.shape(), 3,
                    "at least " + std::to_string(keys) + ", " + whose);
    }
    if (from.b2.is_none()) return;
    detail::check_extent(name(), "b2", from.b2.shape(), 0, from.w2.batch(), "the batch of w2");
    detail::check_extent(name(), "b2", from.b2.shape(), 1, heads, "the heads of v");
    detail::check_extent(name(), "b2", from.b2.shape(), 2, 1, "one row of biases");
    detail::check_extent(name(), "b2", from.b2.shape(), 3, from.w2.width(), "the width of w2");
  }

  /// The multiply-adds of the hidden layer.
  template <class T>
  static double hidden_products(const Inputs<T>& in) {
    return static_cast<double>(in.v.batch() * in.w1.heads() * in.v.rows()) *
           static_cast<double>(in.w1.rows() * in.w1.width());
  }

  /// The call as one of softmax attention, with queries and keys that are yet to be computed.
  template <class T>
  static SoftmaxInputs<T> as_softmax(const Inputs<T>& in, detail::HiddenLayer<T>& hidden) {
    return {hidden.queries(), detail::for_batch<T>(hidden.keys(), in.v.batch()), in.v,
            in.key_lengths};
  }

  /// An executor for a pass of so many multiply-adds for each pair.
  template <class T>
  auto threads_for(const Inputs<T>& in, Index of_pair, const ExecutorRef& executor) const {
    return for_work(executor, [&] {
      return hidden_products(in) + static_cast<double>(of_pair * in.v.batch() * in.w1.heads()) *
                                       static_cast<double>(in.v.rows()) *
                                       static_cast<double>(in.v.rows());
    });
  }

  template <class T>
  void run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved,
           const ExecutorRef& executor) const {
    auto&& threads = threads_for<T>(inputs, inputs.w1.width() + inputs.v.width(), executor);
    detail::HiddenLayer<T> hidden(inputs, inputs.v.batch(), inputs.v.rows());
    hidden.take(worker_count(threads, hidden.most_tasks()), memory_of(threads));
    const auto op = softmax();
    const SoftmaxCall<T> call(as_softmax(inputs, hidden), op.softmax_options());
    const HeadPlans plans(op, call);
    SoftmaxForward pass(call, plans, out, saved);
    pass.reserve(threads);
    memory_of(threads).require();
    hidden.compute(threads);
    pass.compute(threads);
  }

  /// Writes the gradients: the exact derivatives of `forward`, and 0 for what is not visible.
  template <class T>
  void run_backward(const Inputs<T>& inputs, const View<const T>& out, const Saved<T>& saved,
                    const View<const T>& d_out, const Grads<T>& grads,
                    const ExecutorRef& executor) const {
    auto&& threads = threads_for<T>(inputs, 3 * inputs.w1.width() + 2 * inputs.v.width(), executor);
    auto&& memory = memory_of(threads);
    const Index batch = inputs.v.batch();
    detail::HiddenLayer<T> hidden(inputs, batch, inputs.v.rows());
    hidden.take(worker_count(threads, hidden.most_tasks()), memory);
    const bool of_first = !grads.x.is_none() || !grads.w1.is_none() || !grads.b1.is_none();
    const bool of_second = !grads.w2.is_none() || !grads.b2.is_none();
    const Index row = detail::HiddenLayer<T>::row_of(inputs.w1.width()) * Index{sizeof(T)};
    const auto room = [&](bool is_wanted, Index heads) {
      return is_wanted ? memory.take(batch * heads * inputs.v.rows(), row) : Workspace{};
    };
    Workspace of_queries = room(of_first, inputs.w1.heads());
    Workspace of_keys = room(of_second, inputs.v.heads());
    const auto op = softmax();
    const SoftmaxCall<T> call(as_softmax(inputs, hidden), op.softmax_options());
    const HeadPlans plans(op, call);
    SoftmaxGrads<T> wanted;
    if (of_first) wanted.q = hidden.rows_of(of_queries, batch, inputs.w1.heads());
    if (of_second) wanted.k = hidden.rows_of(of_keys, batch, inputs.v.heads());
    wanted.v = grads.v;
    SoftmaxBackward pass(call, plans, out, saved, d_out, wanted);
    pass.reserve(threads);
    memory.require();
    hidden.compute(threads);
    pass.compute(threads);
    hidden.finish(wanted.q, wanted.k, grads, threads);
  }
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
  Index memory_bytes() const {
    return keys_.size_bytes() + (hidden_ ? hidden_->memory_bytes() : 0);
  }

  /// Checks what belongs to the keys of new tokens.
  /// \throws std::invalid_argument
  template <class In>
  static void check_keys(const DecoderShape& shape, const In& from, Index after) {
    if (from.v.is_none()) return;
    check_second_weights(from, shape.batch, shape.key_heads, after, "the rows of v");
    detail::check_extent(name(), "w2", from.w2.shape(), 2, shape.width, "the width of the decoder");
  }

  /// Checks what belongs to the last rows. \throws std::invalid_argument
  static void check_rows(const DecoderShape& shape, const Inputs<T>& in, Index rows,
                         Index /*after*/) {
    detail::check_extent(name(), "x", in.x.shape(), 0, shape.batch, "the batch of the decoder");
    detail::check_extent(name(), "x", in.x.shape(), 2, rows, "the rows of out");
    check_first_weights(in, shape.batch);
    detail::check_extent(name(), "w1", in.w1.shape(), 1, shape.query_heads,
                         "the query_heads of the decoder");
    detail::check_extent(name(), "w1", in.w1.shape(), 3, shape.width, "the width of the decoder");
  }

  /// The keys of new tokens.
  /// \throws std::bad_alloc
  template <class In>
  View<const T> keys(const DecoderShape& shape, const In& from, Index first, Index count) {
    keys_ = detail::KeyColumns<T>(from.w2, from.b2, shape.key_heads, shape.width, count);
    keys_.put(0, first, count);
    return keys_.keys(shape.batch);
  }

  /// Gives the softmax the hidden layer of the last rows.
  /// \throws std::bad_alloc
  void attach(const DecoderShape& shape, const Inputs<T>& in, Index rows, Index /*after*/,
              SoftmaxInputs<T>& to, const ExecutorRef& executor) {
    Inputs<T> first = in;
    first.w2 = {nullptr, {0, 0, 0, 0}, {0, 0, 0, 0}};  // its columns are in the decoder
    hidden_.emplace(first, shape.batch, rows);
    hidden_->take(worker_count(executor, hidden_->most_tasks()), SystemMemory{});
    hidden_->compute(executor);
    to.q = hidden_->queries();
  }

 private:
  detail::KeyColumns<T> keys_;
  std::optional<detail::HiddenLayer<T>> hidden_;
};

FOVEA_NAMESPACE_END
