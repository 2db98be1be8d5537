// SPDX-License-Identifier: MIT
/// \file
/// The logits and the weights of softmax attention, for those who look at them: the only calls of
/// fovea that write tensors of Nq x Nk numbers. Nothing else includes this header.
#pragma once

#include <array>
#include <concepts>
#include <string>
#include <utility>

#include "fovea/attention/softmax/decoder_core.inl.hpp"
#include "fovea/attention/softmax/operator.hpp"
#include "fovea/attention/softmax/score_pass.hpp"

FOVEA_NAMESPACE_BEGIN

/// What attention_scores writes, for tensors of T. A member is written only if it is given a
/// tensor. The four matrices are [B, Hq, Nq, Nk]; in packed sequences pairs of two sequences are
/// -infinity in the first three.
template <class T>
struct AttentionScores {
  View<T> out = {};           ///< [B, Hq, Nq, Dv], as `forward` writes it
  View<Compute<T>> lse = {};  ///< [B, Hq, Nq, 1], as `forward` saves it
  /// scale <q_i, k_j>, of hidden pairs, too.
  View<Compute<T>> raw = {};
  /// The same after soft cap and score modifier, before bias, ALiBi and mask; of hidden pairs, too.
  View<Compute<T>> capped = {};
  /// What enters the softmax: bias and ALiBi are added, and hidden pairs are -infinity.
  View<Compute<T>> logits = {};
  /// What the values are multiplied by: the softmax of the logits, after dropout. Hidden pairs are
  /// 0. A row sums to 1 if it sees a key, and there are neither a sink nor dropout. A row whose
  /// visible logits are all -infinity has weights of 0, though its out is NaN.
  View<Compute<T>> weights = {};
};

namespace detail {

/// The matrices of what is to be written.
template <class T>
ScoreTensors<Compute<T>> matrices_of(const AttentionScores<T>& to) {
  return {to.raw, to.capped, to.logits, to.weights};
}

/// Checks the matrices that are to be written.
/// \param inputs any struct that has `for_each_tensor`, checked
/// \throws std::invalid_argument
template <class T, class In>
void check_scores(const char* op, const In& inputs, const AttentionScores<T>& to,
                  const Shape& expected) {
  std::array<std::pair<const char*, View<Compute<T>>>, 4> before;
  std::size_t count = 0;
  matrices_of(to).for_each_tensor([&](const char* name, const View<Compute<T>>& x) {
    if (x.is_none()) return;
    check_output(op, name, x, inputs, expected);
    check_apart(op, name, x, "out", to.out);
    check_apart(op, name, x, "lse", to.lse);
    for (std::size_t n = 0; n < count; ++n)
      check_apart(op, name, x, before[n].first, before[n].second);
    before[count++] = {name, x};
  });
}

/// An executor whose threads are woken if there are pairs enough.
inline ExecutorRef for_scores(const ExecutorRef& executor, const AttentionShape& s) {
  return for_work(executor, [&] {
    return static_cast<double>(s.batch * s.query_heads) * static_cast<double>(s.queries) *
           static_cast<double>(s.keys) * static_cast<double>(s.width + kRowsToRead);
  });
}

}  // namespace detail

/// Writes logits and weights of a softmax operator, and what `forward` writes if that is asked for:
/// for attention maps, for tests, for the qk_matmul_output of ONNX's Attention (raw, capped, logits
/// and weights are its modes 0 to 3). T is named in the call:
/// `attention_scores<float>(op, {.q = q, .k = k}, {.weights = w})`.
/// \param op any operator that reads SoftmaxInputs: every pattern, option and score modifier
/// \param inputs as in `forward`; v may be missing if `to` has no out
/// \param executor as in `forward`. Scratch for logits and weights is taken from the system
/// \throws what `check` does, and std::invalid_argument for matrices of another shape or in the
/// memory of another tensor, and std::bad_alloc, all before anything is written
///
/// Each element has the same bits for any number of threads. They are not those of the logits
/// within `forward`, which are rounded otherwise.
/// Cost: 2 D flops for each pair (logits and weights alone: for each visible pair), and exp, and
/// tanh under a soft cap, of one number at a time. What `forward` writes costs what it costs there.
template <class T, class Op, class E = Serial>
requires std::derived_from<Op, SoftmaxOperator<Op>> &&
    std::same_as<InputsOf<Op, T>, SoftmaxInputs<T>>
void attention_scores(const Op& op, const SoftmaxInputs<T>& inputs, const AttentionScores<T>& to,
                      E&& executor = {}) {
  SoftmaxInputs<T> in = inputs;
  View<T> out = to.out;
  if (out.is_none()) {
    in.v = View<const T>(nullptr, {in.k.batch(), in.k.heads(), in.k.rows(), 0});
    out = View<T>(nullptr, {in.q.batch(), in.q.heads(), in.q.rows(), 0});
  }
  const SoftmaxSaved<T> saved{to.lse};
  op.check(in, out, saved);
  const AttentionShape shape = shape_of(in);
  detail::check_scores(Op::name(), in, to,
                       {shape.batch, shape.query_heads, shape.queries, shape.keys});
  const SoftmaxCall<T> call(in, op.softmax_options(),
                            op.template score_modifier<Compute<T>, false>());
  const HeadPlans plans(op, call);
  auto&& called = for_call(executor);
  auto&& threads = detail::for_scores(called, shape);
  ScoreMemory<T> memory(plans, shape.width, threads.concurrency());
  if (!to.out.is_none() || !to.lse.is_none()) op.forward(in, out, saved, called);
  ScorePass<T>(call, plans, detail::matrices_of(to)).run(memory, threads);
}

template <class T>
void SoftmaxDecoderCore<T>::step_scores(const SoftmaxOperatorRef& op, const Modifier& modifier,
                                        const SoftmaxInputs<T>& inputs,
                                        const AttentionScores<T>& to, const ExecutorRef& executor) {
  const SoftmaxSaved<T> saved{to.lse};
  const Step step{op, modifier, inputs, to.out, saved};
  check_step(step);
  const SequenceShape rows = rows_after(inputs);
  const Index first = first_key(rows);
  const Index held = rows.keys - first;
  for (const auto& [name, x] : {std::pair{"raw", to.raw}, std::pair{"capped", to.capped}}) {
    if (!x.is_none()) refuse_given(op.name(), name, "a decoder step does not write it");
  }
  const AttentionShape shape{inputs.q.batch(), inputs.q.heads(), shape_.key_heads,
                             inputs.q.rows(),  rows.keys,        inputs.q.width()};
  detail::check_scores(op.name(), inputs, to,
                       {shape.batch, shape.query_heads, shape.queries, shape.keys});
  if (!cache_.holds(held)) {
    refuse_extent(op.name(), "q", inputs.q.shape(), 2,
                  "fewer if logits or weights are given: these rows see keys of the window that "
                  "are forgotten within the step");
  }
  const HeadPlans plans(op, shape.query_heads, rows);
  const ExecutorRef threads = detail::for_scores(executor, shape);
  ScoreMemory<T> memory(plans, shape.width, threads.concurrency());
  this->step(op, modifier, inputs, to.out, saved, executor);
  const SoftmaxCall<T> call = step.call(cache_.keys(first, held), cache_.values(first, held));
  ScorePass(call, plans, detail::matrices_of(to), place(step, rows, first)).run(memory, threads);
}

/// One step of a decoder of a softmax operator, as `step`, which also writes logits and weights of
/// its rows, [B, Hq, n, length after the step].
/// \param inputs, executor as in `step`
/// \param to out must be given. raw and capped must not: a decoder forgets keys that no later row
/// sees
/// \throws what `step` does, and std::invalid_argument for matrices of another shape or in the
/// memory of another tensor, or if the rows see keys of a window that the decoder forgets within
/// the step. Then nothing is written, and the decoder is as it was
/// Cost: that of the step, and that of attention_scores above for its rows.
template <class T, class Op, class E = Serial>
void attention_scores(Decoder<Op, T>& decoder, const SoftmaxInputs<T>& inputs,
                      const AttentionScores<T>& to, E&& executor = {}) {
  auto&& called = for_call(executor);
  decoder.core_.step_scores(decoder.op_, decoder.op_.template score_modifier<Compute<T>, false>(),
                            inputs, to, called);
}

FOVEA_NAMESPACE_END
