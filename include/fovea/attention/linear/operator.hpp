// SPDX-License-Identifier: MIT
/// \file
/// What LinearAttention, DeltaRuleAttention and FmmAttention share: the checks and the calls.
#pragma once

#include <algorithm>

#include "fovea/attention/call/backward_calls.hpp"
#include "fovea/attention/call/forward_calls.hpp"
#include "fovea/attention/linear/backward.hpp"
#include "fovea/attention/linear/check.hpp"
#include "fovea/attention/linear/forward.hpp"
#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// The calls of an operator `Op` with a far field. `Op` has `name()`, `check_options<T>()`, and
/// `far<T>()`, which gives its LinearTerms for arithmetic in T. If it has a near field, it also has
/// `near()`, its LocalAttention. Its constant `kHasBeta` says whether beta is read.
/// The bits of a row do not depend on threads, batch, heads or strides, nor on what the row does
/// not see; a decoder gives the same bits.
/// Errors: `forward` and `backward` throw what `check` and `check_backward` throw, and
/// std::bad_alloc, before anything is written.
/// Cost: O(N D Dv) flops for each term, however long the sequence is.
template <class Op>
class LinearOperator : public ForwardCalls<LinearOperator<Op>>,
                       public BackwardCalls<LinearOperator<Op>> {
 public:
  /// What the operator reads, for tensors of T; `Op` says which type that is.
  template <class T>
  using Inputs = InputsOf<Op, T>;
  /// What the forward pass saves; `Op` says which type that is.
  template <class T>
  using Saved = SavedOf<Op, T>;
  /// The gradients that the backward pass writes, for tensors of T.
  template <class T>
  using Grads = GradsOf<Op, T>;
  /// The sizes of a call.
  using Shape = AttentionShape;
  /// The sizes of a decoder.
  using DecoderShape = fovea::DecoderShape;

  /// Checks what `forward` takes. Cost: O(1), and O(B) or O(S) for key lengths and packed
  /// sequences, O(B Hk Nk) for beta, and O(Hq Dv) for the logits of a blend.
  /// \throws std::invalid_argument, whose message names the operator, the tensor, the dimension,
  /// what was expected and what was given
  template <class T>
  void check(const InputsOf<Op, T>& inputs, const View<T>& out,
             const SavedOf<Op, T>& saved = {}) const {
    check_read(family_inputs<T>(inputs));
    check_output(Op::name(), "out", out, inputs, detail::out_shape(inputs));
    if constexpr (Op::kHasNear) op().check_saved(inputs, out, saved);
  }

  /// \throws std::invalid_argument as `check` does, for everything that `backward` takes
  template <class T>
  void check_backward(const InputsOf<Op, T>& inputs, const View<const T>& out,
                      const SavedOf<Op, T>& saved, const View<const T>& d_out,
                      const GradsOf<Op, T>& grads) const {
    check_read(family_inputs<T>(inputs));
    check_rows(Op::name(), "out", inputs, out);
    check_rows(Op::name(), "d_out", inputs, d_out);
    if constexpr (Op::kHasNear) op().check_saved_shapes(inputs, saved);
    check_grads(Op::name(), inputs, out, saved, d_out, grads);
  }

  /// Bytes of scratch memory that `forward` takes with that many workers.
  template <class T>
  [[nodiscard]] Index workspace_bytes(const AttentionShape& shape, Index workers = 1) const {
    const auto far = op().template far<Compute<T>>();
    using Near = typename Op::template NearField<T>;
    return LinearForward<T, std::remove_const_t<decltype(far)>, Near>::workspace_bytes(shape, far,
                                                                                       workers);
  }

  /// The number of visible (query, key) pairs of one query head; the largest Index if there are
  /// more.
  [[nodiscard]] Index visible_pairs(const AttentionShape& shape, Index /*head*/ = 0) const {
    const auto far = op().template far<float>();
    const auto sequence = SequenceShape::of(shape.queries, shape.keys, far.alignment);
    return far.causal ? Causal{}.plan(sequence).visible_pairs()
                      : Dense{}.plan(sequence).visible_pairs();
  }

  /// The gradients in the form that the passes take; those that the operator does not have are
  /// none.
  template <class T>
  static LinearFamilyGrads<T> family_grads(const GradsOf<Op, T>& grads) {
    LinearFamilyGrads<T> all{grads.q, grads.k, grads.v};
    if constexpr (requires { grads.beta; }) all.beta = grads.beta;
    if constexpr (requires { grads.near_logits; }) {
      all.near_logits = grads.near_logits;
      all.far_logits = grads.far_logits;
    }
    return all;
  }

 private:
  friend class ForwardCalls<LinearOperator<Op>>;
  friend class BackwardCalls<LinearOperator<Op>>;

  const Op& op() const { return static_cast<const Op&>(*this); }

  /// The multiply-adds of a forward pass: rows read states, tokens are added to them, and a row of
  /// the near field sees the keys of its band.
  double products(const AttentionShape& s) const {
    const auto far = op().template far<float>();
    const double rows = static_cast<double>(s.batch * s.query_heads * s.queries);
    double products =
        (rows + static_cast<double>(s.batch * s.key_heads * s.keys)) * far.products_of_row(s);
    if constexpr (Op::kHasNear) {
      const auto& band = op().near().options;
      products += rows * static_cast<double>(s.width + s.value_width) *
                  (std::min)(static_cast<double>(s.keys), 1.0 + static_cast<double>(band.left) +
                                                              static_cast<double>(band.right));
    }
    return products;
  }

  template <class T>
  static LinearFamilyInputs<T> family_inputs(const InputsOf<Op, T>& inputs) {
    return detail::inputs_as<LinearFamilyInputs<T>>(inputs);
  }

  /// Checks the options and everything that `forward` and `backward` read.
  template <class T>
  void check_read(const LinearFamilyInputs<T>& inputs) const {
    op().template check_options<Compute<T>>();
    check_inputs(Op::name(), inputs);
    check_packing(Op::name(), inputs);
    check_first_positions(Op::name(), inputs);
    const auto far = op().template far<float>();
    check_alignment(Op::name(), inputs, far.alignment, [&] { return far.causal || Op::kHasNear; });
    if constexpr (Op::kHasBeta) check_beta(Op::name(), inputs);
    if constexpr (Op::kHasNear) op().check_logits(inputs);
  }

  /// Writes the gradients of the loss, of which d_out is the gradient with respect to out: the
  /// exact derivatives of `forward`, and 0 for what is not visible. The states are recomputed, and
  /// so is a near field that was not saved; those of a far field also run backwards from the end.
  /// Cost: 10 D Dv to 12 D Dv flops for each token, head and feature map. Memory: O(N), and a state
  /// for each worker; under the delta rule a worker also holds a state for every kDeltaChunk tokens
  /// of its head.
  template <class T>
  void run_backward(const InputsOf<Op, T>& inputs, const View<const T>& /*out*/,
                    const SavedOf<Op, T>& saved, const View<const T>& d_out,
                    const GradsOf<Op, T>& grads, const ExecutorRef& executor) const {
    auto&& threads = for_work(executor, [&] { return 2.5 * products(shape_of(inputs)); });
    op().compute_gradients(family_inputs<T>(inputs), saved, d_out, family_grads<T>(grads), threads);
  }

  template <class T>
  void run(const InputsOf<Op, T>& inputs, const View<T>& out, const SavedOf<Op, T>& saved,
           const ExecutorRef& executor) const {
    auto&& threads = for_work(executor, [&] { return products(shape_of(inputs)); });
    op().compute(family_inputs<T>(inputs), out, saved, threads);
  }
};

/// The calls of an operator without a near field. `Op` is as in LinearOperator.
template <class Op>
class LinearOnlyOperator : public LinearOperator<Op> {
 public:
  /// What the forward pass saves: nothing.
  template <class T>
  using Saved = LinearSaved<T>;
  /// The operator has no near field.
  static constexpr bool kHasNear = false;
  /// What computes the near field in the forward pass: there is none.
  template <class T>
  using NearField = NoNearField;
  /// What decodes the near field: there is none.
  template <class T>
  using NearDecoder = NoNearField;

  /// Bytes of scratch memory that `backward` takes with that many workers.
  template <class T>
  [[nodiscard]] Index backward_workspace_bytes(const AttentionShape& shape,
                                               Index workers = 1) const {
    const auto far = op().template far<T>();
    return LinearBackward<T, std::remove_const_t<decltype(far)>>::workspace_bytes(shape, far,
                                                                                  workers);
  }

  /// The weights of the far field, by which a mean over maps divides.
  /// \tparam T the type of the arithmetic
  template <class T>
  [[nodiscard]] FarWeights<T> far_weights(Index heads, Index value_width) const {
    return FarWeights<T>::alone(heads, value_width, op().template far<T>().share());
  }

 private:
  friend class LinearOperator<Op>;

  const Op& op() const { return static_cast<const Op&>(*this); }

  template <class T>
  void compute(const LinearFamilyInputs<T>& inputs, const View<T>& out,
               const LinearSaved<T>& /*saved*/, const ExecutorRef& executor) const {
    const FarWeights<Compute<T>> weights =
        far_weights<Compute<T>>(inputs.q.heads(), inputs.v.width());
    LinearForward(inputs, op().template far<Compute<T>>(), weights, out).run(executor);
  }

  template <class T>
  void compute_gradients(const LinearFamilyInputs<T>& inputs, const LinearSaved<T>& /*saved*/,
                         const View<const T>& d_out, const LinearFamilyGrads<T>& grads,
                         const ExecutorRef& executor) const {
    const FarWeights<T> weights = far_weights<T>(inputs.q.heads(), inputs.v.width());
    LinearBackward pass(inputs, op().template far<T>(), weights, d_out, grads, false);
    pass.reserve(false, executor);
    pass.compute(nullptr, executor);
  }
};

FOVEA_NAMESPACE_END
