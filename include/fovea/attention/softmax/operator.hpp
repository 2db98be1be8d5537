// SPDX-License-Identifier: MIT
/// \file
/// The calls common to the softmax operators, which differ only in their patterns.
#pragma once

#include <optional>

#include "fovea/attention/call/backward_calls.hpp"
#include "fovea/attention/call/forward_calls.hpp"
#include "fovea/attention/softmax/decoder.hpp"
#include "fovea/attention/softmax/passes.hpp"

FOVEA_NAMESPACE_BEGIN

/// The calls of a softmax operator `Op`. `Op` has `name()`, `options` with either only a scale or
/// at least the members of SoftmaxOptions (or its own `softmax_options()`), `check_options()`, and
/// `pattern(head, shape)`, which returns any Pattern or MultiPassPattern. It may have
/// `pattern_period(heads)` if heads have different patterns, and `check_pattern(shape)` if its
/// options do not suit every sequence.
///
/// out[b, h, i] = sum_j softmax_j(s_ij) v_j over the visible keys j: those that the pattern shows
/// to row i, that are within the batch entry's key length or the row's packed sequence, and that
/// neither mask nor bias hides. The logit is s_ij = scale <q_i, k_j>, soft-capped, plus bias, minus
/// ALiBi (MATHS.md, section 2). Shapes are as in SoftmaxInputs and SoftmaxSaved.
///
/// A row that sees no key is +0, and its lse is -infinity. A visible NaN or infinity reaches the
/// row; invisible ones change no bit. Weights are divided by their sum last, so values beyond max /
/// Nk may overflow. A row's bits do not depend on threads, batch, heads or strides, nor on the rows
/// and keys that it does not see.
///
/// Errors: `forward` and `backward` throw what `check` and `check_backward` throw, and
/// std::bad_alloc, before anything is written. Later exceptions from a user's pattern reach the
/// caller, and the outputs are then unspecified.
///
/// Cost: 2 (D + Dv) flops for each visible pair. Memory: O(threads block_rows (D + Dv)); a pattern
/// with several passes takes three more numbers for each row, and Dv more for 16-bit tensors.
/// `workspace_bytes` does not depend on the number of keys nor, unless the pattern has passes, on
/// the number of queries beyond a block; but few queries take their running softmax for each
/// kKeySegment keys, and lists of these, which are not taken from an Arena. `backward` takes one
/// number less for each row than `backward_workspace_bytes`, and four less for a pattern with
/// several passes, if no row has a large lse (MATHS.md, section 8), unless the memory comes from an
/// Arena.
template <class Op>
class SoftmaxOperator : public ForwardCalls<SoftmaxOperator<Op>>,
                        public BackwardCalls<SoftmaxOperator<Op>> {
 public:
  /// The common options. If `options` has only a scale, the others have their defaults.
  SoftmaxOptions softmax_options() const {
    const auto& o = op().options;
    if constexpr (requires { o.alignment; }) {
      return {o.scale, o.alignment, o.soft_cap, o.dropout};
    } else {
      return {.scale = o.scale};
    }
  }

  /// The inputs, for tensors of T.
  template <class T>
  using Inputs = SoftmaxInputs<T>;
  /// What the forward pass saves: lse, if a tensor is given.
  template <class T>
  using Saved = SoftmaxSaved<T>;
  /// The gradients, for tensors of T.
  template <class T>
  using Grads = SoftmaxGrads<T>;
  /// The gradients with respect to out and lse, inputs of the backward pass.
  template <class T>
  using OutGrads = SoftmaxOutGrads<T>;
  /// A call's sizes.
  using Shape = AttentionShape;
  /// A decoder's sizes.
  using DecoderShape = fovea::DecoderShape;

  /// A decoder's new tokens: k and v.
  template <class T>
  using Tokens = KeyValueTokens<T>;

  /// A user's function of the logits, for a forward or a backward pass: none by default.
  template <class C, bool kBackward>
  ScoreModifierArgs<C> score_modifier() const {
    return {};
  }

  /// The period of the heads' patterns: by default all heads have the same.
  Index pattern_period(Index /*heads*/) const { return 1; }

  /// Whether `pattern(head, shape)` depends on the shape, so that a decoder must call it at every
  /// step.
  static constexpr bool kPatternKnowsShape = true;

  /// Whether the operator's options define a band of keys around each query, for which kernels have
  /// variants of common narrow widths.
  static constexpr bool kNamesBand = false;

  /// Checks that the options suit such a sequence; by default they always do.
  /// \throws std::invalid_argument if they do not
  void check_pattern(const SequenceShape& /*shape*/) const {}

  /// Checks `forward`'s arguments. Cost: O(1), and O(B), O(S) or O(Hq) for key lengths, packed
  /// sequences and numbers of each head.
  /// \throws std::invalid_argument, whose message names the operator, the tensor, the dimension,
  /// what was expected and what was given
  template <class T>
  void check(const InputsOf<SoftmaxOperator, T>& inputs, const View<T>& out,
             const SavedOf<SoftmaxOperator, T>& saved = {}) const {
    SoftmaxPasses<T>::check(op(), inputs, out, saved);
  }

  /// The same without check_pattern, for growing sequences, and for a part of the rows.
  /// \param sequence the sequence's number of rows, if these are a part of them: bias and mask have
  /// as many columns
  template <class T>
  void check_tensors(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved,
                     const std::optional<Index>& sequence = {}) const {
    SoftmaxPasses<T>::check_tensors(op(), inputs, out, saved, sequence);
  }

  /// \throws std::invalid_argument as `check` does, for everything that `backward` takes
  template <class T>
  void check_backward(const InputsOf<SoftmaxOperator, T>& inputs, const View<const T>& out,
                      const SavedOf<SoftmaxOperator, T>& saved, const View<const T>& d_out,
                      const GradsOf<SoftmaxOperator, T>& grads) const {
    check_backward_tensors(inputs, out, saved, d_out, grads);
    check_sequences(inputs);
  }

  /// The same without check_pattern, for a part of a sequence's rows, as in check_tensors.
  template <class T>
  void check_backward_tensors(const Inputs<T>& inputs, const View<const T>& out,
                              const Saved<T>& saved, const View<const T>& d_out,
                              const Grads<T>& grads,
                              const std::optional<Index>& sequence = {}) const {
    SoftmaxBackwardPasses<T>::check_tensors(op(), inputs, out, saved, d_out, grads, sequence);
  }

  /// Checks the gradient with respect to lse, once `check_backward` has passed.
  /// \throws std::invalid_argument
  template <class T>
  static void check_d_lse(const Inputs<T>& inputs, const View<const T>& d_lse,
                          const Grads<T>& grads) {
    SoftmaxBackwardPasses<T>::check_d_lse(Op::name(), inputs, d_lse, grads);
  }

  /// A decoder: the same attention token by token, with these options.
  /// \throws as the constructor of Decoder does
  template <class T>
  [[nodiscard]] Decoder<Op, T> decoder(const DecoderShape& shape) const {
    return {op(), shape};
  }

  /// The number of (query, key) pairs of one query head that the pattern shows; the largest Index
  /// if there are more.
  [[nodiscard]] Index attended_pairs(const AttentionShape& shape, Index head = 0) const {
    const SequenceShape sequence = sequence_shape(shape);
    return AnyPattern(op().pattern(head, sequence)).attended_pairs(sequence);
  }

 private:
  friend Op;  // an operator with more inputs calls these passes for the common part
  friend class ForwardCalls<SoftmaxOperator<Op>>;
  friend class BackwardCalls<SoftmaxOperator<Op>>;

  const Op& op() const { return static_cast<const Op&>(*this); }

  SequenceShape sequence_shape(const AttentionShape& shape) const {
    return SequenceShape::of(shape.queries, shape.keys, op().softmax_options().alignment);
  }

  template <class T>
  void check_sequences(const SoftmaxInputs<T>& inputs) const {
    SoftmaxPasses<T>::check_sequences(op(), inputs);
  }

  /// Writes the gradients of the loss, given d_out, its gradient with respect to out, and d_lse
  /// that with respect to lse: the exact derivatives of `forward`, with soft cap, bias, sink and
  /// the same dropout draws, and 0 for what is not visible. The weights are recomputed from lse.
  /// For rows with |lse| > kLargeLse, the rounding error of lse is computed as well. That costs the
  /// blocks of such rows 2 D more flops for each visible pair, and the call one number for each row
  /// (four if the pattern has passes).
  /// Cost: 2 (3 D + 2 Dv) flops for each visible pair, and for the gradient of bias as much as the
  /// forward pass again. Memory: O(threads block_rows (D + Dv)), and 4 bytes for each head and
  /// query block.
  template <class T>
  void run_backward(const InputsOf<SoftmaxOperator, T>& inputs, const View<const T>& out,
                    const SavedOf<SoftmaxOperator, T>& saved, const View<const T>& d_out,
                    const GradsOf<SoftmaxOperator, T>& grads, const ExecutorRef& executor,
                    const View<const T>& d_lse = {}) const {
    SoftmaxBackwardPasses<T>::backward(op(), op().template score_modifier<T, true>(), inputs, out,
                                       saved, d_out, grads, d_lse, executor);
  }

  template <class T>
  void run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved,
           const ExecutorRef& executor) const {
    const auto modifier = op().template score_modifier<Compute<T>, false>();
    if constexpr (Op::kNamesBand) {
      SoftmaxPasses<T>::band_forward(op(), modifier, inputs, out, saved, executor);
    } else {
      SoftmaxPasses<T>::forward(op(), modifier, inputs, out, saved, executor);
    }
  }
};

FOVEA_NAMESPACE_END
