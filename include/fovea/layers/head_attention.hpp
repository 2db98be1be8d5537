// SPDX-License-Identifier: MIT
/// \file
/// An attention operator between a layer's projections, where heads are columns of its matrices.
#pragma once

#include <array>

#include "fovea/layers/attend.hpp"
#include "fovea/layers/learned_global.hpp"
#include "fovea/layers/learned_projections.hpp"
#include "fovea/layers/logit_terms.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The dropout of an operator's weights (of the inner operator, if it wraps one); null if it has
/// none.
template <class Op>
std::conditional_t<std::is_const_v<Op>, const Dropout, Dropout>* dropout_of(Op& op) {
  if constexpr (requires { op.options.dropout; }) {
    return &op.options.dropout;
  } else if constexpr (requires { op.attention; }) {
    return dropout_of(op.attention);
  } else {
    return nullptr;
  }
}

/// Converts the elements of heads [B, H, L, D].
template <class From, class To>
void convert_heads(const View<const From>& from, const View<To>& to, const ExecutorRef& executor) {
  const auto threads = for_work(executor, [&] { return 8 * static_cast<double>(to.size()); });
  for_each_task(threads, to.batch() * to.heads(), [&](Index task, Index /*worker*/) {
    const Index b = task / to.heads();
    const Index h = task % to.heads();
    for (Index n = 0; n < to.rows(); ++n) {
      for (Index c = 0; c < to.width(); ++c) to(b, h, n, c) = static_cast<To>(from(b, h, n, c));
    }
  });
}

}  // namespace detail

/// The inputs and outputs of a decoder with tensors of type S.
template <class S>
struct StoredHeads {
  std::array<Buffer<S>, 3> qkv;  ///< [B, H, n, D] the queries, [B, Hk, n, D] keys and values
  Buffer<S> out;                 ///< [B, H, n, D] the outputs
};

/// Calls the operator `Op` on heads, with its learned inputs `G`, and saves what its backward pass
/// reads. Learned inputs are computed from the source tokens.
///
/// The operator's dropout, if any, applies only to tokens with a training step. Its draws depend on
/// the step, the layer and the operator's own seed.
template <class Op, class T, class G = LearnedInputs<Op, T>>
class HeadAttention : public LayerParts<HeadAttention<Op, T, G>> {
  static_assert(DifferentiableAttention<Op, T>,
                "fovea: a layer requires an operator with a backward pass for its scalar type");

 public:
  Op op;                 ///< The operator; its options may change between steps.
  G learned;             ///< What the operator learns besides the projections.
  LogitTerms<T> logits;  ///< The terms that tokens and layer add to the logits.

  /// State saved for backward, and a buffer for a gradient.
  struct Saved {
    Buffer<T> out;              ///< [B, 1, L, H D] the outputs of the heads
    Buffer<T> d_out;            ///< [B, 1, L, H D] their gradient
    Buffer<T> lse;              ///< [B, H, L, 1], if the operator or its near field has one
    Buffer<T> near_out;         ///< [B, H, L, D], if the operator has a near field
    typename G::Saved learned;  ///< the learned inputs'
    typename LogitTerms<T>::Saved logits;  ///< the logit terms'
    std::optional<TrainingStep> training;  ///< the forward pass's step
  };

  /// An empty part; assign one before use.
  HeadAttention() = default;
  /// \param layer its layer's name, for messages
  /// \param chosen operator with its options
  /// \param sizes of the heads \param initialiser draws the parameters
  /// \param terms of the logits
  /// \throws std::invalid_argument if the operator does not read those terms
  HeadAttention(const char* layer, const Op& chosen, const HeadSizes& sizes,
                Initialiser& initialiser, const LogitOptions& terms = {})
      : op(chosen),
        learned(chosen, sizes, initialiser),
        logits(LogitTerms<T>::template of<InputsOf<Op, T>>(layer, Op::name(), terms, sizes.heads)) {
  }

  /// Lists the parts of the learned inputs, and the sinks.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    G::each_part(self.learned, f);
    f(self.logits);
  }

  /// The operator to call for tokens with this training step, if any.
  Op op_for(const std::optional<TrainingStep>& training) const {
    Op made = op;
    Dropout* const dropout = detail::dropout_of(made);
    if (dropout == nullptr || !is_dropping(*dropout)) return made;  // checked later
    if (training) {
      dropout->seed ^= dropout_seed(*training, DropoutPlace::weights);
    } else {
      dropout->probability = 0;
    }
    return made;
  }

  /// Computes the attention of all heads.
  /// \param qkv [B, H, L, D] the queries, then [B, Hk, L, D] the keys and the values
  /// \param source tokens from which learned inputs are computed
  /// \param saved receives what `backward` needs
  /// \return [B, 1, L, H D] the concatenated outputs of the heads
  template <class E>
  View<const T> forward(const std::array<View<const T>, 3>& qkv, const Tokens<T>& source,
                        Saved& saved, E&& executor) const {
    const auto& q = qkv[0];
    const View<T> out = saved.out.resize(q.batch(), q.rows(), q.heads() * q.width());
    if (kHasLse || kHasNear) saved.lse.resize({q.batch(), q.heads(), q.rows(), 1});
    if (kHasNear) saved.near_out.resize(q.shape());
    learned.compute(op, source, saved.learned, executor);
    const auto call = attached(qkv, source, saved);
    saved.training = source.training;
    with_op(source, [&](const Op& used) {
      detail::attend<Op, T>(used, call.first, as_heads(out, 0, q.heads(), q.width()), call.second,
                            executor);
    });
    return out;
  }

  /// Computes the attention of new tokens with a decoder of the operator.
  /// \param decoder of this operator \param qkv, source as in `forward`, of the new tokens
  /// \param scratch is written
  /// \return [B, 1, n, H D] the concatenated outputs of the heads
  template <class D, class E>
  View<const T> step(D& decoder, const std::array<View<const T>, 3>& qkv, const Tokens<T>& source,
                     Saved& scratch, E&& executor) const {
    const auto& q = qkv[0];
    const View<T> out = scratch.out.resize(q.batch(), q.rows(), q.heads() * q.width());
    learned.compute(op, source, scratch.learned, executor);
    const auto [inputs, kept] = attached(qkv, source, scratch);
    decoder.step(inputs, as_heads(out, 0, q.heads(), q.width()), executor);
    return out;
  }

  /// The same for a decoder with tensors of a 16-bit type S: queries, keys and values are rounded
  /// to S.
  /// \param stored is written
  template <class S, class D, class E>
  View<const T> step_stored(D& decoder, const std::array<View<const T>, 3>& qkv,
                            const Tokens<T>& source, Saved& scratch, StoredHeads<S>& stored,
                            E&& executor) const {
    const auto& q = qkv[0];
    InputsOf<Op, S> inputs;
    View<const S>* const into[] = {&inputs.q, &inputs.k, &inputs.v};
    for (std::size_t i = 0; i < 3; ++i) {
      const View<S> rounded = stored.qkv[i].resize(qkv[i].shape());
      detail::convert_heads(qkv[i], rounded, executor);
      *into[i] = rounded;
    }
    logits.attach(Op::name(), source, inputs);
    const View<S> out = stored.out.resize(q.shape());
    const View<T> side_by_side = scratch.out.resize(q.batch(), q.rows(), q.heads() * q.width());
    decoder.step(inputs, out, executor);
    detail::convert_heads(View<const S>(out), as_heads(side_by_side, 0, q.heads(), q.width()),
                          executor);
    return side_by_side;
  }

  /// The buffer for the gradient of the output of `forward`, which `backward` reads.
  static View<T> d_out(Saved& saved) { return saved.d_out.resize(saved.out.view().shape()); }

  /// Checks the arguments of `backward`, before any gradient is changed.
  /// \param executor if it shards rows, the operator's pass checks its own tensors
  /// \throws std::invalid_argument as the operator, and if the training step is not that of the
  /// forward pass
  template <class E>
  void check_backward(const char* layer, const std::array<View<const T>, 3>& qkv,
                      const Tokens<T>& source, Saved& saved, const std::array<View<T>, 3>& d_qkv,
                      const E& executor) const {
    check_training(layer, saved.training, source.training);
    static_cast<void>(executor);
    if constexpr (ShardsRows<E>) return;
    const auto [inputs, kept] = attached(qkv, source, saved);
    const GradsOf<Op, T> grads = asked(source, saved, d_qkv);
    op.check_backward(inputs, heads_of(saved.out, qkv[0]), kept, heads_of(saved.d_out, qkv[0]),
                      grads);
  }

  /// Computes the gradients of queries, keys and values from saved.d_out.
  /// \param d_qkv the gradients, written
  template <class E>
  void backward(const std::array<View<const T>, 3>& qkv, const Tokens<T>& source, Saved& saved,
                const std::array<View<T>, 3>& d_qkv, E&& executor) {
    const auto call = attached(qkv, source, saved);
    const GradsOf<Op, T> grads = asked(source, saved, d_qkv);
    const View<const T> out = heads_of(saved.out, qkv[0]);
    const View<const T> d_out = heads_of(saved.d_out, qkv[0]);
    with_op(source, [&](const Op& used) {
      detail::attend_backward<Op, T>(used, call.first, out, call.second, d_out, grads, executor);
    });
  }

  /// Adds to the gradients of the learned inputs, the sinks and the bias. Called after `backward`.
  /// \param d_source if given, the gradient of the source is added to it
  template <class E>
  void finish(const Tokens<T>& source, Saved& saved, const View<T>& d_source, E&& executor) {
    learned.finish(source, saved.learned, d_source, executor);
    logits.finish(source, saved.logits, executor);
  }

 private:
  static bool is_dropping(const Dropout& dropout) {
    return dropout.probability > 0 && dropout.probability < 1;
  }

  /// Calls f(operator) with the operator for these tokens; it is not copied unless dropout is set.
  template <class F>
  void with_op(const Tokens<T>& source, F&& f) const {
    const Dropout* const dropout = detail::dropout_of(op);
    if (dropout != nullptr && is_dropping(*dropout)) return f(op_for(source.training));
    f(op);
  }

  /// Whether the operator saves lse.
  static constexpr bool kHasLse = requires(SavedOf<Op, T> kept) { kept.lse; };
  /// Whether the operator saves a near field.
  static constexpr bool kHasNear = requires(SavedOf<Op, T> kept) { kept.near_out; };

  /// The outputs of the heads, or their gradient, in the operator's layout.
  static View<const T> heads_of(Buffer<T>& side_by_side, const View<const T>& q) {
    return as_heads(side_by_side.view(), 0, q.heads(), q.width());
  }

  /// The gradients requested from the operator.
  GradsOf<Op, T> asked(const Tokens<T>& source, Saved& saved,
                       const std::array<View<T>, 3>& d_qkv) const {
    GradsOf<Op, T> grads;
    grads.q = d_qkv[0];
    grads.k = d_qkv[1];
    grads.v = d_qkv[2];
    learned.request_grads(source, saved.learned, grads);
    logits.request_grads(source, saved.logits, grads);
    return grads;
  }

  std::pair<InputsOf<Op, T>, SavedOf<Op, T>> attached(const std::array<View<const T>, 3>& qkv,
                                                      const Tokens<T>& source, Saved& saved) const {
    InputsOf<Op, T> inputs;
    inputs.q = qkv[0];
    inputs.k = qkv[1];
    inputs.v = qkv[2];
    logits.attach(Op::name(), source, inputs);
    if constexpr (requires { inputs.indices; }) inputs.indices = source.indices;
    if constexpr (requires { inputs.dominant; }) inputs.dominant = source.dominant;
    SavedOf<Op, T> kept;
    if constexpr (kHasLse) kept.lse = saved.lse.view();
    if constexpr (kHasNear) {
      kept.near_out = saved.near_out.view();
      kept.near_lse = saved.lse.view();
    }
    learned.attach(source, saved.learned, inputs, kept);
    return {inputs, kept};
  }
};

FOVEA_NAMESPACE_END
