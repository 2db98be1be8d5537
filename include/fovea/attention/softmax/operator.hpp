// SPDX-License-Identifier: MIT
/// \file
/// What the softmax operators share: checks, scheduling, the call of the kernel. Only the pattern
/// differs.
#pragma once

#include "fovea/attention/call/backward_calls.hpp"
#include "fovea/attention/call/check.hpp"
#include "fovea/attention/call/forward_calls.hpp"
#include "fovea/attention/softmax/backward.hpp"
#include "fovea/attention/softmax/decoder.hpp"
#include "fovea/attention/softmax/forward.hpp"
#include "fovea/attention/softmax/head_plans.hpp"

FOVEA_NAMESPACE_BEGIN

/// The calls of a softmax operator `Op`, which has `name()`, `options` with at least what
/// SoftmaxOptions has or with a scale alone, `check_options()` and `pattern(head, shape)`: any
/// Pattern or StagedPattern. It may have `pattern_period(heads)`, if heads have different patterns,
/// and `check_pattern(shape)`, if not every sequence goes with its options. out[b, h, i] = sum_j
/// softmax_j(s_ij) v_j over the visible keys j: those that the pattern shows to row i, that lie
/// within the batch's key length or the row's packed sequence, and that neither mask nor bias
/// hides. s_ij is the logit scale <q_i, k_j>, soft-capped, plus bias, minus ALiBi. A row that sees
/// no key is +0, and its lse -inf. A NaN or infinity that is visible reaches the row; what is not
/// visible changes no bit. Weights are divided by their sum last, so values of more than max / Nk
/// may overflow. The bits of a row depend on neither threads, batch, heads, strides nor on the rows
/// and keys that it does not see. Cost: 2 (D + Dv) flops per visible pair, memory O(threads
/// block_rows (D + Dv)); under a pattern of several stages three numbers for each row besides, and
/// Dv more for tensors of 16 bits.
template <class Op>
class SoftmaxOperator : public ForwardCalls<SoftmaxOperator<Op>>,
                        public BackwardCalls<SoftmaxOperator<Op>> {
 public:
  /// The options that every softmax operator has; those of one that has a scale alone.
  SoftmaxOptions softmax_options() const {
    const auto& o = op().options;
    if constexpr (requires { o.alignment; }) {
      return {o.scale, o.alignment, o.soft_cap, o.dropout};
    } else {
      return {.scale = o.scale};
    }
  }

  template <class T>
  using Inputs = SoftmaxInputs<T>;
  template <class T>
  using Saved = SoftmaxSaved<T>;
  template <class T>
  using Grads = SoftmaxGrads<T>;
  using Shape = AttentionShape;
  using DecoderShape = fovea::DecoderShape;

  /// What a decoder takes of new tokens.
  template <class T>
  using Tokens = KeyValueTokens<T>;

  /// The patterns of heads repeat after so many of them. \param heads of the queries
  Index pattern_period(Index /*heads*/) const { return 1; }

  /// Whether `pattern(head, shape)` may differ for another shape: a decoder asks at every step.
  static constexpr bool kPatternKnowsShape = true;

  /// \throws std::invalid_argument options that do not go with such a sequence
  void check_pattern(const SequenceShape& /*shape*/) const {}

  /// \throws std::invalid_argument naming operator, tensor, dimension, expected and got. O(1) (in
  /// the batch and the number of sequences and heads for what is given of each).
  template <class T>
  void check(const InputsOf<Op, T>& inputs, const View<T>& out,
             const SavedOf<Op, T>& saved = {}) const {
    check_tensors(inputs, out, saved);
    op().check_pattern(sequence_shape(shape_of(inputs)));
  }

  /// The same without check_pattern: for sequences that still grow.
  template <class T>
  void check_tensors(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved) const {
    check_read(inputs);
    check_outputs(Op::name(), inputs, out, saved);
  }

  /// \throws std::invalid_argument as `check`, for everything that `backward` takes.
  template <class T>
  void check_backward(const InputsOf<Op, T>& inputs, const View<const T>& out,
                      const SavedOf<Op, T>& saved, const View<const T>& d_out,
                      const GradsOf<Op, T>& grads) const {
    check_read(inputs);
    op().check_pattern(sequence_shape(shape_of(inputs)));
    check_rows(Op::name(), "out", inputs, out);
    check_rows(Op::name(), "d_out", inputs, d_out);
    check_lse(Op::name(), inputs, saved);
    check_grads(Op::name(), inputs, out, saved, d_out, grads);
  }

  /// Bytes of scratch of `backward` with that many workers, one batch and head.
  template <class T>
  [[nodiscard]] Index backward_workspace_bytes(const AttentionShape& shape,
                                               Index workers = 1) const {
    const HeadPlans plans(op(), shape.query_heads, sequence_shape(shape));
    return SoftmaxBackward<T>::workspace_bytes(shape, plans, workers);
  }

  /// The same attention for tokens that come one after the other, with these options.
  /// \throws as the constructor of Decoder
  template <class T>
  [[nodiscard]] Decoder<Op, T> decoder(const DecoderShape& shape) const {
    return {op(), shape};
  }

  /// Bytes of scratch of `forward` with that many workers: independent of the number of keys, and
  /// of the number of queries beyond a block, unless the pattern has stages.
  template <class T>
  [[nodiscard]] Index workspace_bytes(const AttentionShape& shape, Index workers = 1) const {
    const HeadPlans plans(op(), shape.query_heads, sequence_shape(shape));
    return SoftmaxForward<T>::workspace_bytes(shape, plans, workers);
  }

  /// (query, key) pairs of one query head that the pattern shows; the largest Index, if they are
  /// more.
  [[nodiscard]] Index visible_pairs(const AttentionShape& shape, Index head = 0) const {
    const SequenceShape sequence = sequence_shape(shape);
    return AnyPattern(op().pattern(head, sequence)).visible_pairs(sequence);
  }

 private:
  friend class ForwardCalls<SoftmaxOperator<Op>>;
  friend class BackwardCalls<SoftmaxOperator<Op>>;

  const Op& op() const { return static_cast<const Op&>(*this); }

  SequenceShape sequence_shape(const AttentionShape& shape) const {
    return SequenceShape::of(shape.queries, shape.keys, softmax_options().alignment);
  }

  /// Options and inputs.
  template <class T>
  void check_read(const Inputs<T>& inputs) const {
    op().check_options();
    check_softmax_options<Compute<T>>(Op::name(), softmax_options());
    check_inputs(Op::name(), inputs);
    check_packing(Op::name(), inputs);
    check_logit_inputs(Op::name(), inputs);
  }

  /// Gradients of the loss from d_out, its gradient with respect to out: exact derivatives of
  /// `forward`, soft cap, bias, sink and dropout (the same draws) included; 0 for what is not
  /// visible. Weights are recomputed from lse; of rows with |lse| > kLargeLse also from what its
  /// rounding took, which costs their blocks 2 D flops per visible pair more, and the call one
  /// number for each row (four if the pattern has stages). Cost: 2 (3 D + 2 Dv) flops per visible
  /// pair, and as much as forward again for the gradient of bias. Memory O(threads block_rows (D +
  /// Dv)), and 4 bytes for each head and block of queries.
  template <class T, class E>
  void run_backward(const InputsOf<Op, T>& inputs, const View<const T>& out,
                    const SavedOf<Op, T>& saved, const View<const T>& d_out,
                    const GradsOf<Op, T>& grads, E&& executor) const {
    const SoftmaxCall call(inputs, softmax_options());
    const HeadPlans plans(op(), call);
    SoftmaxBackward(call, plans, out, saved, d_out, grads).run(executor);
  }

  template <class T, class E>
  void run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved, E&& executor) const {
    const SoftmaxCall call(inputs, softmax_options());
    const HeadPlans plans(op(), call);
    SoftmaxForward(call, plans, out, saved).run(executor);
  }
};

FOVEA_NAMESPACE_END
