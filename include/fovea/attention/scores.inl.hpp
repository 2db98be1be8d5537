// SPDX-License-Identifier: MIT
/// \file
/// Included by scores.hpp, where it is documented.
#pragma once

#include <array>
#include <utility>

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/scores.hpp"
#include "fovea/attention/softmax/decoder_step.hpp"
#include "fovea/attention/softmax/score_pass.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The requested matrices.
template <class T>
ScoreTensors<Compute<T>> matrices_of(const AttentionScores<T>& to) {
  return {to.raw, to.capped, to.logits, to.weights};
}

/// Checks the requested matrices.
/// \param inputs a checked struct that has `for_each_tensor`
/// \throws std::invalid_argument
template <class T, class In>
void check_scores(const char* op, const In& inputs, const AttentionScores<T>& to,
                  const Shape& expected) {
  std::array<std::pair<const char*, View<Compute<T>>>, 4> before;
  std::size_t count = 0;
  matrices_of(to).for_each_tensor([&](const char* name, const View<Compute<T>>& x) {
    if (x.empty()) return;
    check_output(op, name, x, inputs, expected);
    check_apart(op, name, x, "out", to.out);
    check_apart(op, name, x, "lse", to.lse);
    for (std::size_t n = 0; n < count; ++n)
      check_apart(op, name, x, before[n].first, before[n].second);
    before[count++] = {name, x};
  });
}

/// An executor that wakes its threads only if there are enough pairs.
inline ExecutorRef for_scores(const ExecutorRef& executor, const AttentionShape& s) {
  return for_work(executor, [&] {
    return static_cast<double>(s.batch * s.query_heads) * static_cast<double>(s.queries) *
           static_cast<double>(s.keys) * static_cast<double>(s.width + kRowsToRead);
  });
}

}  // namespace detail

template <class T>
void ScorePasses<T>::check(const char* op, const SoftmaxInputs<T>& inputs,
                           const AttentionScores<T>& to) {
  const AttentionShape shape = shape_of(inputs);
  detail::check_scores(op, inputs, to, {shape.batch, shape.query_heads, shape.queries, shape.keys});
}

template <class T>
void ScorePasses<T>::write(const SoftmaxOperatorRef& op, const Modifier& modifier,
                           const SoftmaxInputs<T>& inputs, const AttentionScores<T>& to,
                           const ExecutorRef& executor, FunctionRef<void()> forward) {
  const SoftmaxCall<T> call(inputs, op.options(), modifier);
  const HeadPlans plans(op, call);
  const AttentionShape shape = call.shape();
  const ExecutorRef threads = detail::for_scores(executor, shape);
  ScoreMemory<T> memory(plans, shape.width, threads.concurrency());
  forward();
  ScorePass<T>(call, plans, detail::matrices_of(to)).run(memory, threads);
}

template <class T>
void ScorePasses<T>::step(SoftmaxDecoderCore<T>& decoder, const SoftmaxOperatorRef& op,
                          const Modifier& modifier, const SoftmaxInputs<T>& inputs,
                          const AttentionScores<T>& to, const ExecutorRef& executor) {
  const SoftmaxSaved<T> saved{to.lse};
  const typename SoftmaxDecoderCore<T>::Step step{op, modifier, inputs, to.out, saved};
  decoder.check_step(step);
  const SequenceShape rows = decoder.rows_after(inputs);
  const Index first = decoder.first_key(rows);
  const Index held = rows.keys - first;
  for (const auto& [name, x] : {std::pair{"raw", to.raw}, std::pair{"capped", to.capped}}) {
    if (!x.empty()) refuse_given(op.name(), name, "a decoder step does not write it");
  }
  const AttentionShape shape{inputs.q.batch(), inputs.q.heads(), decoder.shape_.key_heads,
                             inputs.q.rows(),  rows.keys,        inputs.q.width()};
  detail::check_scores(op.name(), inputs, to,
                       {shape.batch, shape.query_heads, shape.queries, shape.keys});
  if (!decoder.cache_.holds(held)) {
    refuse_extent(op.name(), "q", inputs.q.shape(), 2,
                  "fewer if logits or weights are given: their windows contain keys that the "
                  "decoder drops within the step");
  }
  const HeadPlans plans(op, shape.query_heads, rows);
  const ExecutorRef threads = detail::for_scores(executor, shape);
  ScoreMemory<T> memory(plans, shape.width, threads.concurrency());
  decoder.step(op, modifier, inputs, to.out, saved, executor);
  const SoftmaxCall<T> call =
      step.call(decoder.cache_.keys(first, held), decoder.cache_.values(first, held));
  ScorePass(call, plans, detail::matrices_of(to), decoder.place(step, rows, first))
      .run(memory, threads);
}

FOVEA_PASSES(ScorePasses)

FOVEA_NAMESPACE_END
