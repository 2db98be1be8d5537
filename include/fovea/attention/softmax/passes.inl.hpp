// SPDX-License-Identifier: MIT
/// \file
/// Included by passes.hpp, where it is documented.
#pragma once

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/softmax/backward.hpp"
#include "fovea/attention/softmax/forward.hpp"
#include "fovea/attention/softmax/head_plans.hpp"
#include "fovea/attention/softmax/passes.hpp"
#include "fovea/attention/softmax/split_kv_forward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The sequences of a call of this shape.
inline SequenceShape whole_sequence(const SoftmaxOperatorRef& op, const AttentionShape& shape) {
  return SequenceShape::of(shape.queries, shape.keys, op.options().alignment);
}

template <class T>
void softmax_forward(const SoftmaxOperatorRef& op, const ScoreModifierArgs<Compute<T>>& modifier,
                     const SoftmaxInputs<T>& inputs, const View<T>& out,
                     const SoftmaxSaved<T>& saved, const ExecutorRef& executor,
                     typename SoftmaxForward<T>::BlockKernel block) {
  const SoftmaxCall<T> call(inputs, op.options(), modifier);
  if (inputs.q.rows() <= kMostRows && !call.sequences().packed()) {
    const SplitKvForward few(op, call);
    if (few.applies(worker_count(executor, kUnboundedKeys))) {
      few.run(call, out, saved, executor);
      return;
    }
  }
  const HeadPlans plans(op, call);
  const AttentionShape shape = call.shape();
  const ExecutorRef threads =
      for_work(executor, [&] { return plans.products(call, shape.width + shape.value_width); });
  SoftmaxForward<T>(call, plans, out, saved, {}, block).run(threads);
}

}  // namespace detail

template <class T>
void SoftmaxPasses<T>::check(const SoftmaxOperatorRef& op, const SoftmaxInputs<T>& inputs,
                             const View<T>& out, const SoftmaxSaved<T>& saved) {
  check_tensors(op, inputs, out, saved, {});
  check_sequences(op, inputs);
}

template <class T>
void SoftmaxPasses<T>::check_tensors(const SoftmaxOperatorRef& op, const SoftmaxInputs<T>& inputs,
                                     const View<T>& out, const SoftmaxSaved<T>& saved,
                                     const std::optional<Index>& sequence) {
  check_read(op, inputs, sequence);
  check_outputs(op.name(), inputs, out, saved);
}

template <class T>
void SoftmaxPasses<T>::check_read(const SoftmaxOperatorRef& op, const SoftmaxInputs<T>& inputs,
                                  const std::optional<Index>& sequence) {
  op.check_options();
  check_softmax_options<Compute<T>>(op.name(), op.options());
  check_inputs(op.name(), inputs);
  check_packing(op.name(), inputs);
  check_first_positions(op.name(), inputs);
  check_logit_inputs(op.name(), inputs, sequence);
}

template <class T>
void SoftmaxPasses<T>::check_sequences(const SoftmaxOperatorRef& op,
                                       const SoftmaxInputs<T>& inputs) {
  const Sequences<T> sequences(inputs, op.options().alignment);
  const AttentionShape shape = shape_of(inputs);
  const SequenceShape whole = detail::whole_sequence(op, shape);
  const bool is_one = sequences.packed() || sequences.count() == 0;
  if (is_one) op.check_pattern(whole);
  for (Index s = 0; !is_one && s < sequences.different(); ++s) {
    op.check_pattern({shape.queries, shape.keys, sequences[s].first_position});
  }
  check_alignment(op.name(), inputs, op.options().alignment, [&] {
    for (Index h = 0; h < op.period(shape.query_heads); ++h) {
      if (op.pattern(h, whole).knows_positions(whole)) return true;
    }
    return false;
  });
}

template <class T>
void SoftmaxPasses<T>::forward(const SoftmaxOperatorRef& op, const Modifier& modifier,
                               const SoftmaxInputs<T>& inputs, const View<T>& out,
                               const SoftmaxSaved<T>& saved, const ExecutorRef& executor) {
  detail::softmax_forward<T>(op, modifier, inputs, out, saved, executor,
                             &SoftmaxForward<T>::Kernels::block);
}
template <class T>
void SoftmaxPasses<T>::band_forward(const SoftmaxOperatorRef& op, const Modifier& modifier,
                                    const SoftmaxInputs<T>& inputs, const View<T>& out,
                                    const SoftmaxSaved<T>& saved, const ExecutorRef& executor) {
  detail::softmax_forward<T>(op, modifier, inputs, out, saved, executor,
                             &SoftmaxForward<T>::Kernels::band_block);
}

template <class T>
void SoftmaxBackwardPasses<T>::check_tensors(const SoftmaxOperatorRef& op,
                                             const SoftmaxInputs<T>& inputs,
                                             const View<const T>& out, const SoftmaxSaved<T>& saved,
                                             const View<const T>& d_out,
                                             const SoftmaxGrads<T>& grads,
                                             const std::optional<Index>& sequence) {
  SoftmaxPasses<T>::check_read(op, inputs, sequence);
  check_softmax_backward(op.name(), inputs, out, saved, d_out, grads);
}

template <class T>
void SoftmaxBackwardPasses<T>::check_d_lse(const char* op, const SoftmaxInputs<T>& inputs,
                                           const View<const T>& d_lse,
                                           const SoftmaxGrads<T>& grads) {
  fovea::check_d_lse(op, inputs, d_lse, grads);
}

template <class T>
void SoftmaxBackwardPasses<T>::backward(const SoftmaxOperatorRef& op, const Modifier& modifier,
                                        const SoftmaxInputs<T>& inputs, const View<const T>& out,
                                        const SoftmaxSaved<T>& saved, const View<const T>& d_out,
                                        const SoftmaxGrads<T>& grads, const View<const T>& d_lse,
                                        const ExecutorRef& executor) {
  const SoftmaxCall<T> call(inputs, op.options(), modifier);
  const HeadPlans plans(op, call);
  const AttentionShape shape = call.shape();
  const ExecutorRef threads = for_work(
      executor, [&] { return plans.products(call, 3 * shape.width + 2 * shape.value_width); });
  SoftmaxBackward<T>(call, plans, out, saved, d_out, grads, d_lse).run(threads);
}

FOVEA_PASSES(SoftmaxPasses)
FOVEA_FLOAT_AND_DOUBLE_PASSES(SoftmaxBackwardPasses)

FOVEA_NAMESPACE_END
