// SPDX-License-Identifier: MIT
/// \file
/// What LinearAttention, DeltaRuleAttention, FmmAttention and PerformerAttention share: the checks
/// and the calls.
#pragma once

#include "fovea/attention/call/backward_calls.hpp"
#include "fovea/attention/call/forward_calls.hpp"
#include "fovea/attention/linear/passes.hpp"
#include "fovea/patterns/window.hpp"

FOVEA_NAMESPACE_BEGIN

/// The calls of an operator `Op` with a far field. `Op` has `name()`; the types `Passes<T>` and
/// `BackwardPasses<T>`; and `settings<T>()`, which their functions take, for arithmetic in T. It
/// may replace the types of shapes. A row's bits do not depend on threads, batch, heads or strides,
/// nor on what the row does not see; a decoder gives the same bits. Errors: `forward` and
/// `backward` throw what `check` and `check_backward` throw, and std::bad_alloc, before anything is
/// written. Cost: O(N D Dv) flops for each term.
template <class Op>
class LinearOperator : public ForwardCalls<LinearOperator<Op>>,
                       public BackwardCalls<LinearOperator<Op>> {
 public:
  /// The inputs, for tensors of T; `Op` defines the type.
  template <class T>
  using Inputs = InputsOf<Op, T>;
  /// What the forward pass saves; `Op` defines the type.
  template <class T>
  using Saved = SavedOf<Op, T>;
  /// The gradients, for tensors of T.
  template <class T>
  using Grads = GradsOf<Op, T>;
  /// A call's sizes.
  using Shape = AttentionShape;
  /// A decoder's sizes.
  using DecoderShape = fovea::DecoderShape;

  /// Checks `forward`'s arguments. Cost: O(1), and O(B) or O(S) for key lengths and packed
  /// sequences, O(B Hk Nk) for beta, and O(Hq Dv) for the logits of a blend.
  /// \throws std::invalid_argument, whose message names the operator, the tensor, the dimension,
  /// what was expected and what was given
  template <class T>
  void check(const InputsOf<Op, T>& inputs, const View<T>& out,
             const SavedOf<Op, T>& saved = {}) const {
    Op::template Passes<T>::check(op().template settings<Compute<T>>(), family_inputs<T>(inputs),
                                  out, saved);
  }

  /// \throws std::invalid_argument as `check` does, for everything that `backward` takes
  template <class T>
  void check_backward(const InputsOf<Op, T>& inputs, const View<const T>& out,
                      const SavedOf<Op, T>& saved, const View<const T>& d_out,
                      const GradsOf<Op, T>& grads) const {
    Op::template BackwardPasses<T>::check(op().template settings<T>(), family_inputs<T>(inputs),
                                          out, saved, d_out, family_grads<T>(grads));
  }

  /// Bytes of scratch memory for `forward` with that many workers.
  template <class T, class O = Op>
  [[nodiscard]] Index workspace_bytes(const typename O::Shape& shape, Index workers = 1) const {
    return this->template counted_forward<T>(shape, workers);
  }

  /// Bytes of scratch memory for `backward` with that many workers.
  template <class T, class O = Op>
  [[nodiscard]] Index backward_workspace_bytes(const typename O::Shape& shape,
                                               Index workers = 1) const {
    return this->template counted_backward<T>(shape, workers);
  }

  /// The number of visible (query, key) pairs of one query head; the largest Index if there are
  /// more.
  [[nodiscard]] Index attended_pairs(const AttentionShape& shape, Index /*head*/ = 0) const {
    const auto far_field = op().template settings<float>().far_field;
    const auto sequence = SequenceShape::of(shape.queries, shape.keys, far_field.alignment);
    return far_field.causal ? Causal{}.plan(sequence).attended_pairs()
                            : Dense{}.plan(sequence).attended_pairs();
  }

  /// The inputs as the passes take them.
  template <class T>
  static auto family_inputs(const InputsOf<Op, T>& inputs) {
    return detail::inputs_as<typename Op::template Passes<T>::Inputs>(inputs);
  }
  /// The gradients as the passes take them; those that the operator does not have are empty.
  template <class T>
  static auto family_grads(const GradsOf<Op, T>& grads) {
    typename Op::template BackwardPasses<T>::Grads all{grads.q, grads.k, grads.v};
    if constexpr (requires { grads.beta; }) all.beta = grads.beta;
    if constexpr (requires { grads.near_logits; }) {
      all.near_logits = grads.near_logits;
      all.far_logits = grads.far_logits;
    }
    if constexpr (requires { grads.projection; }) all.projection = grads.projection;
    return all;
  }

 private:
  friend class ForwardCalls<LinearOperator<Op>>;
  friend class BackwardCalls<LinearOperator<Op>>;

  const Op& op() const { return static_cast<const Op&>(*this); }

  /// Writes the gradients of the loss, given d_out, its gradient with respect to out: the exact
  /// derivatives of `forward`, and 0 for what is not visible. States are recomputed, and so is a
  /// near field that was not saved; the far field also needs states from the end backwards.
  /// Cost: 10 D Dv to 12 D Dv flops for each token, head and feature map. Memory: O(N), and a state
  /// for each worker; with the delta rule a worker also stores a state for every kDeltaChunk tokens
  /// of its head.
  template <class T>
  void run_backward(const InputsOf<Op, T>& inputs, const View<const T>& /*out*/,
                    const SavedOf<Op, T>& saved, const View<const T>& d_out,
                    const GradsOf<Op, T>& grads, const ExecutorRef& executor) const {
    Op::template BackwardPasses<T>::backward(op().template settings<T>(), family_inputs<T>(inputs),
                                             saved, d_out, family_grads<T>(grads), executor);
  }

  template <class T>
  void run(const InputsOf<Op, T>& inputs, const View<T>& out, const SavedOf<Op, T>& saved,
           const ExecutorRef& executor) const {
    Op::template Passes<T>::forward(op().template settings<Compute<T>>(), family_inputs<T>(inputs),
                                    out, saved, executor);
  }
};

/// The calls of an operator without a near field. `Op` is as in LinearOperator, except for this
/// class's members.
/// \tparam kDelta whether its term is written by the delta rule
template <class Op, bool kDelta>
class LinearOnlyOperator : public LinearOperator<Op> {
 public:
  /// Whether the operator reads beta.
  static constexpr bool kHasBeta = kDelta;
  /// The operator has no near field.
  static constexpr bool kHasNear = false;
  /// What the forward pass saves: nothing.
  template <class T>
  using Saved = LinearSaved<T>;
  /// The forward pass's implementation.
  template <class T>
  using Passes = LinearPasses<T, !kDelta, kDelta>;
  /// The backward pass's implementation.
  template <class T>
  using BackwardPasses = LinearBackwardPasses<T, !kDelta, kDelta>;

  /// The operator's settings, for arithmetic in C.
  template <class C>
  LinearSettings<C, !kDelta, kDelta> settings() const {
    return {Op::name(), static_cast<const Op&>(*this).template far_field<C>()};
  }
};

FOVEA_NAMESPACE_END
