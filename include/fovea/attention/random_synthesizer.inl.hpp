// SPDX-License-Identifier: MIT
/// \file
/// Included by random_synthesizer.hpp, where it is documented.
#pragma once

#include "fovea/attention/random_synthesizer.hpp"
#include "fovea/attention/synthesizer/passes.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T>
Index RandomSynthesizerAttention::workspace_bytes(const Shape& shape, Index workers) const {
  return detail::synthesizer_forward_bytes<T>(softmax(), without_width(shape), workers);
}

template <class T>
Index RandomSynthesizerAttention::backward_workspace_bytes(const Shape& shape,
                                                           Index workers) const {
  return softmax().template backward_workspace_bytes<T>(without_width(shape), workers);
}

template <class T>
void RandomSynthesizerAttention::check_read(const Inputs<T>& in,
                                            const std::optional<Index>& sequence) {
  detail::check_synthesizer_lengths(name(), in);
  detail::check_weight_batch(name(), "r", in.r, in.v.batch());
  detail::check_head_groups(name(), "r", in.r, in.v);
  detail::check_extent(name(), "r", in.r.shape(), 2, in.v.rows(), "the rows of v");
  detail::check_extent(name(), "r", in.r.shape(), 3, sequence.value_or(in.v.rows()),
                       sequence ? "the rows of the sequence" : "the rows of v");
}

template <class T>
void RandomSynthesizerAttention::run(const Inputs<T>& inputs, const View<T>& out,
                                     const Saved<T>& saved, const ExecutorRef& executor) const {
  const auto op = softmax();
  const SoftmaxCall<T> call(as_softmax(inputs), op.softmax_options());
  const HeadPlans plans(op, call);
  auto&& threads = for_work(executor, [&] { return plans.products(call, inputs.v.width() + 1); });
  SoftmaxForward(call, plans, out, saved).run(threads);
}

template <class T>
void RandomSynthesizerAttention::run_backward(const Inputs<T>& inputs, const View<const T>& out,
                                              const Saved<T>& saved, const View<const T>& d_out,
                                              const Grads<T>& grads,
                                              const ExecutorRef& executor) const {
  const auto op = softmax();
  const SoftmaxCall<T> call(as_softmax(inputs), op.softmax_options());
  const HeadPlans plans(op, call);
  auto&& threads =
      for_work(executor, [&] { return plans.products(call, 2 * inputs.v.width() + 1); });
  SoftmaxGrads<T> wanted;
  wanted.v = grads.v;
  wanted.bias = grads.r;
  SoftmaxBackward(call, plans, out, saved, d_out, wanted).run(threads);
}

template <class T>
template <class In>
void RandomSynthesizerAttention::DecoderForm<T>::check_keys(const DecoderShape& /*shape*/,
                                                            const In& /*from*/, Index /*after*/) {}

template <class T>
void RandomSynthesizerAttention::DecoderForm<T>::check_rows(const DecoderShape& shape,
                                                            const Inputs<T>& in, Index /*rows*/,
                                                            Index after) {
  detail::check_weight_batch(name(), "r", in.r, shape.batch);
  detail::check_extent(name(), "r", in.r.shape(), 1, shape.query_heads,
                       "the query_heads of the decoder");
  detail::check_reaches(name(), "r", in.r, 2, after);
  detail::check_reaches(name(), "r", in.r, 3, after);
}

template <class T>
template <class In>
View<const T> RandomSynthesizerAttention::DecoderForm<T>::keys(const DecoderShape& shape,
                                                               const In& /*from*/, Index /*first*/,
                                                               Index count) {
  return detail::no_width<T>(shape.batch, shape.key_heads, count);
}

template <class T>
void RandomSynthesizerAttention::DecoderForm<T>::attach(const DecoderShape& shape,
                                                        const Inputs<T>& in, Index rows,
                                                        Index after, SoftmaxInputs<T>& to,
                                                        const ExecutorRef& /*executor*/) {
  to.q = detail::no_width<T>(shape.batch, shape.query_heads, rows);
  to.bias = detail::part_of(detail::part_of(in.r, 2, after - rows, rows), 3, 0, after);
}

FOVEA_IN_FLOAT_UNIT(FOVEA_SYNTHESIZER_FORWARD, RandomSynthesizerAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_SYNTHESIZER_FORWARD, RandomSynthesizerAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_SYNTHESIZER_FORWARD, RandomSynthesizerAttention)
FOVEA_IN_FLOAT_UNIT(FOVEA_SYNTHESIZER_BACKWARD, RandomSynthesizerAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_SYNTHESIZER_BACKWARD, RandomSynthesizerAttention)

FOVEA_NAMESPACE_END
