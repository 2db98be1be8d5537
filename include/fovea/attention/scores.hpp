// SPDX-License-Identifier: MIT
/// \file
/// The logits and weights of softmax attention, for inspection: the only calls in fovea that write
/// Nq x Nk tensors. Nothing else includes this header.
#pragma once

#include <concepts>

#include "fovea/attention/softmax/operator.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

/// What attention_scores writes, for tensors of T. Members without a tensor are not written. The
/// four matrices are [B, Hq, Nq, Nk]; in packed sequences, pairs across sequences are -infinity in
/// the first three.
template <class T>
struct AttentionScores {
  View<T> out = {};           ///< [B, Hq, Nq, Dv], as `forward` writes it
  View<Compute<T>> lse = {};  ///< [B, Hq, Nq, 1], as `forward` saves it
  /// scale <q_i, k_j>, also for hidden pairs.
  View<Compute<T>> raw = {};
  /// The same after soft cap and score modifier, before bias, ALiBi and mask; also for hidden
  /// pairs.
  View<Compute<T>> capped = {};
  /// The input of the softmax: with bias and ALiBi added, and -infinity for hidden pairs.
  View<Compute<T>> logits = {};
  /// The factors of the values: the softmax of the logits, after dropout. Hidden pairs are 0. A row
  /// sums to 1 if it sees a key and there is neither a sink nor dropout. A row whose visible logits
  /// are all -infinity has weights of 0, though its out is NaN.
  View<Compute<T>> weights = {};
};

/// The part of attention_scores that does not depend on the operator, documented there.
template <class T>
class ScorePasses {
 public:
  /// The modifier of the logits.
  using Modifier = ScoreModifierArgs<Compute<T>>;

  /// Checks the matrices of a call. \param op the name in messages \pre the inputs are checked
  static void check(const char* op, const SoftmaxInputs<T>& inputs, const AttentionScores<T>& to);
  /// Writes them. \param forward called after all memory is allocated; it writes out and lse
  static void write(const SoftmaxOperatorRef& op, const Modifier& modifier,
                    const SoftmaxInputs<T>& inputs, const AttentionScores<T>& to,
                    const ExecutorRef& executor, FunctionRef<void()> forward);

  /// One step of a decoder, which also writes them.
  template <class Op>
  static void step(Decoder<Op, T>& decoder, const SoftmaxInputs<T>& inputs,
                   const AttentionScores<T>& to, const ExecutorRef& executor) {
    step(decoder.core_, decoder.op_, decoder.op_.template score_modifier<Compute<T>, false>(),
         inputs, to, executor);
  }

 private:
  static void step(SoftmaxDecoderCore<T>& decoder, const SoftmaxOperatorRef& op,
                   const Modifier& modifier, const SoftmaxInputs<T>& inputs,
                   const AttentionScores<T>& to, const ExecutorRef& executor);
};

/// Writes a softmax operator's logits and weights, and optionally what `forward` writes: for
/// attention maps, tests, or the qk_matmul_output of ONNX's Attention (raw, capped, logits and
/// weights are its modes 0 to 3). T must be specified:
/// `attention_scores<float>(op, {.q = q, .k = k}, {.weights = w})`.
/// \param op any operator that reads SoftmaxInputs: every pattern, option and score modifier
/// \param inputs as in `forward`; v may be missing if `to` has no out
/// \param executor as in `forward`. Scratch for logits and weights comes from the system
/// \throws what `check` does, and std::invalid_argument for matrices of the wrong shape or
/// overlapping another tensor, and std::bad_alloc, all before anything is written
///
/// Each element has the same bits for any number of threads. They may differ from the logits inside
/// `forward`, which are rounded differently.
/// Cost: 2 D flops for each pair (if only logits and weights are written, for each visible pair),
/// and scalar exp, and tanh under a soft cap. out and lse cost what they cost in `forward`.
template <class T, class Op, class E = Serial>
requires std::derived_from<Op, SoftmaxOperator<Op>> &&
    std::same_as<InputsOf<Op, T>, SoftmaxInputs<T>>
void attention_scores(const Op& op, const SoftmaxInputs<T>& inputs, const AttentionScores<T>& to,
                      E&& executor = {}) {
  SoftmaxInputs<T> in = inputs;
  View<T> out = to.out;
  if (out.empty()) {
    in.v = View<const T>(nullptr, {in.k.batch(), in.k.heads(), in.k.rows(), 0});
    out = View<T>(nullptr, {in.q.batch(), in.q.heads(), in.q.rows(), 0});
  }
  const SoftmaxSaved<T> saved{to.lse};
  op.check(in, out, saved);
  ScorePasses<T>::check(Op::name(), in, to);
  auto&& called = for_call(executor);
  ScorePasses<T>::write(op, op.template score_modifier<Compute<T>, false>(), in, to, called, [&] {
    if (!to.out.empty() || !to.lse.empty()) op.forward(in, out, saved, called);
  });
}

/// One step of a softmax operator's decoder, like `step`, which also writes its rows' logits and
/// weights, [B, Hq, n, length after the step].
/// \param inputs, executor as in `step`
/// \param to out must be given. raw and capped must not, since a decoder drops keys that no later
/// row sees
/// \throws what `step` does, and std::invalid_argument for matrices of the wrong shape or
/// overlapping another tensor, or if the rows see keys of a window that the decoder drops within
/// the step. Then nothing is written, and the decoder is unchanged
/// Cost: the step's, and that of attention_scores above for its rows.
template <class T, class Op, class E = Serial>
void attention_scores(Decoder<Op, T>& decoder, const SoftmaxInputs<T>& inputs,
                      const AttentionScores<T>& to, E&& executor = {}) {
  ScorePasses<T>::step(decoder, inputs, to, for_call(executor));
}

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/scores.inl.hpp"
#endif
