// SPDX-License-Identifier: MIT
/// \file
/// The calls that the softmax operators have in common. Only the pattern differs.
#pragma once

#include <optional>

#include "fovea/attention/call/backward_calls.hpp"
#include "fovea/attention/call/forward_calls.hpp"
#include "fovea/attention/softmax/decoder.hpp"
#include "fovea/attention/softmax/passes.hpp"

FOVEA_NAMESPACE_BEGIN

/// The calls of a softmax operator `Op`. `Op` has `name()`, `options` with either a scale alone or
/// at least the members of SoftmaxOptions (or `softmax_options()` of its own), `check_options()`,
/// and `pattern(head, shape)`, which returns any Pattern or StagedPattern. It may have
/// `pattern_period(heads)` if heads have different patterns, and `check_pattern(shape)` if its
/// options do not fit every sequence.
///
/// out[b, h, i] = sum_j softmax_j(s_ij) v_j over the visible keys j: those that the pattern shows
/// to row i, that lie within the batch entry's key length or the row's packed sequence, and that
/// neither mask nor bias hides. The logit is s_ij = scale <q_i, k_j>, soft-capped, plus bias, minus
/// ALiBi (MATHS.md, section 2). The shapes are those of SoftmaxInputs and SoftmaxSaved.
///
/// A row that sees no key is +0, and its lse is -infinity. A NaN or infinity that is visible
/// reaches the row; what is not visible changes no bit. Weights are divided by their sum last, so
/// values beyond max / Nk may overflow. The bits of a row do not depend on threads, batch, heads or
/// strides, nor on the rows and keys that it does not see.
///
/// Errors: `forward` and `backward` throw what `check` and `check_backward` throw, and
/// std::bad_alloc, before anything is written. What a user's pattern throws later reaches the
/// caller, and the outputs are then unspecified.
///
/// Cost: 2 (D + Dv) flops for each visible pair. Memory: O(threads block_rows (D + Dv)); a pattern
/// of several stages takes three more numbers for each row, and Dv more for tensors of 16 bits.
template <class Op>
class SoftmaxOperator : public ForwardCalls<SoftmaxOperator<Op>>,
                        public BackwardCalls<SoftmaxOperator<Op>> {
 public:
  /// The options that every softmax operator has. If `options` has a scale alone, the others are
  /// the defaults.
  SoftmaxOptions softmax_options() const {
    const auto& o = op().options;
    if constexpr (requires { o.alignment; }) {
      return {o.scale, o.alignment, o.soft_cap, o.dropout};
    } else {
      return {.scale = o.scale};
    }
  }

  /// What the operator reads, for tensors of T.
  template <class T>
  using Inputs = SoftmaxInputs<T>;
  /// What the forward pass saves: lse, if it has a tensor.
  template <class T>
  using Saved = SoftmaxSaved<T>;
  /// The gradients that the backward pass writes, for tensors of T.
  template <class T>
  using Grads = SoftmaxGrads<T>;
  /// The gradients with respect to out and lse that the backward pass reads.
  template <class T>
  using OutGrads = SoftmaxOutGrads<T>;
  /// The sizes of a call.
  using Shape = AttentionShape;
  /// The sizes of a decoder.
  using DecoderShape = fovea::DecoderShape;

  /// What a decoder takes for new tokens: k and v.
  template <class T>
  using Tokens = KeyValueTokens<T>;

  /// A user's function of logits, for a forward or a backward pass: none by default.
  template <class C, bool kBackward>
  ScoreModifierArgs<C> score_modifier() const {
    return {};
  }

  /// The patterns of heads repeat after this many query heads: all have the same by default.
  Index pattern_period(Index /*heads*/) const { return 1; }

  /// Whether `pattern(head, shape)` may differ for another shape, so that a decoder must ask for it
  /// at every step.
  static constexpr bool kPatternKnowsShape = true;

  /// Whether the operator's options name a band of keys around each query. Kernels then have forms
  /// for narrow bands of common widths.
  static constexpr bool kNamesBand = false;

  /// Checks that the options fit such a sequence; by default they always do.
  /// \throws std::invalid_argument if they do not
  void check_pattern(const SequenceShape& /*shape*/) const {}

  /// Checks what `forward` takes. Cost: O(1), and O(B), O(S) or O(Hq) for key lengths, packed
  /// sequences and numbers of each head.
  /// \throws std::invalid_argument, whose message names the operator, the tensor, the dimension,
  /// what was expected and what was given
  template <class T>
  void check(const InputsOf<SoftmaxOperator, T>& inputs, const View<T>& out,
             const SavedOf<SoftmaxOperator, T>& saved = {}) const {
    SoftmaxPasses<T>::check(op(), inputs, out, saved);
  }

  /// The same without check_pattern, for sequences that still grow, and for a part of the rows.
  /// \param sequence the rows of the sequence, if these are a part of them: bias and mask have as
  /// many columns
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

  /// The same without check_pattern, for a part of the rows of a sequence, as in check_tensors.
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

  /// Bytes of scratch memory that `backward` takes with that many workers if there is a row with a
  /// large lse (MATHS.md, section 8); otherwise it takes a number less for each row, and under a
  /// pattern of several stages four, unless the memory is that of an Arena.
  template <class T>
  [[nodiscard]] Index backward_workspace_bytes(const AttentionShape& shape,
                                               Index workers = 1) const {
    return SoftmaxBackwardPasses<T>::workspace_bytes(op(), shape, workers);
  }

  /// A decoder: the same attention for tokens that come one after the other, with these options.
  /// \throws as the constructor of Decoder does
  template <class T>
  [[nodiscard]] Decoder<Op, T> decoder(const DecoderShape& shape) const {
    return {op(), shape};
  }

  /// Bytes of scratch memory that `forward` takes with that many workers. It does not depend on the
  /// number of keys nor, unless the pattern has stages, on the number of queries beyond a block;
  /// but few queries take as much as their running softmax for each kKeySegment keys, and lists of
  /// these, which are not taken from an Arena.
  template <class T>
  [[nodiscard]] Index workspace_bytes(const AttentionShape& shape, Index workers = 1) const {
    return SoftmaxPasses<T>::workspace_bytes(op(), shape, workers);
  }

  /// The number of (query, key) pairs of one query head that the pattern shows; the largest Index
  /// if there are more.
  [[nodiscard]] Index visible_pairs(const AttentionShape& shape, Index head = 0) const {
    const SequenceShape sequence = sequence_shape(shape);
    return AnyPattern(op().pattern(head, sequence)).visible_pairs(sequence);
  }

 private:
  friend Op;  // an operator that reads more calls these passes for what it has in common
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

  /// Writes the gradients of the loss, of which d_out is the gradient with respect to out, and
  /// d_lse that with respect to lse: the exact derivatives of `forward`, with soft cap, bias, sink
  /// and the same dropout draws, and 0 for what is not visible. The weights are recomputed from
  /// lse. For rows with |lse| > kLargeLse, what the rounding of lse took is computed as well. That
  /// costs the blocks of such rows 2 D more flops for each visible pair, and the call one number
  /// for each row (four if the pattern has stages).
  /// Cost: 2 (3 D + 2 Dv) flops for each visible pair, and as much as the forward pass again for
  /// the gradient of bias. Memory: O(threads block_rows (D + Dv)), and 4 bytes for each head and
  /// block of queries.
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
