// SPDX-License-Identifier: MIT
/// \file
/// Included by factorised_synthesizer.hpp, where it is documented.
#pragma once

#include <utility>

#include "fovea/attention/factorised_synthesizer.hpp"
#include "fovea/attention/synthesizer/passes.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T>
Index FactorisedSynthesizerAttention::workspace_bytes(const Shape& shape, Index workers) const {
  return detail::synthesizer_forward_bytes<T>(softmax(), shape, workers);
}

template <class T>
Index FactorisedSynthesizerAttention::backward_workspace_bytes(const Shape& shape,
                                                               Index workers) const {
  const auto sums = [&](Index heads) {
    return shape.batch == 1 ? 0
                            : shape.batch * heads * shape.queries * shape.width * Index{sizeof(T)};
  };
  return softmax().template backward_workspace_bytes<T>(shape, workers) + sums(shape.query_heads) +
         sums(shape.key_heads);
}

template <class T>
void FactorisedSynthesizerAttention::check_read(const Inputs<T>& in,
                                                const std::optional<Index>& /*sequence*/) {
  detail::check_synthesizer_lengths(name(), in);
  for (const auto& [tensor, factor] : {std::pair{"r1", &in.r1}, std::pair{"r2", &in.r2}}) {
    detail::check_weight_batch(name(), tensor, *factor, in.v.batch());
    detail::check_extent(name(), tensor, factor->shape(), 2, in.v.rows(), "the rows of v");
  }
  detail::check_head_groups(name(), "r1", in.r1, in.v);
  detail::check_extent(name(), "r2", in.r2.shape(), 1, in.v.heads(), "the heads of v");
  detail::check_extent(name(), "r2", in.r2.shape(), 3, in.r1.width(), "the width of r1");
}

template <class T>
void FactorisedSynthesizerAttention::run(const Inputs<T>& inputs, const View<T>& out,
                                         const Saved<T>& saved, const ExecutorRef& executor) const {
  const auto op = softmax();
  const SoftmaxCall<T> call(as_softmax(inputs), op.softmax_options());
  const HeadPlans plans(op, call);
  auto&& threads = for_work(
      executor, [&] { return plans.products(call, inputs.r1.width() + inputs.v.width()); });
  SoftmaxForward(call, plans, out, saved).run(threads);
}

template <class T>
void FactorisedSynthesizerAttention::run_backward(const Inputs<T>& inputs, const View<const T>& out,
                                                  const Saved<T>& saved, const View<const T>& d_out,
                                                  const Grads<T>& grads,
                                                  const ExecutorRef& executor) const {
  const auto op = softmax();
  const SoftmaxCall<T> call(as_softmax(inputs), op.softmax_options());
  const HeadPlans plans(op, call);
  auto&& threads = for_work(
      executor, [&] { return plans.products(call, 3 * inputs.r1.width() + 2 * inputs.v.width()); });
  // A factor of all sequences has the sum of the gradients that each sequence gives it.
  detail::BatchSum<T> of_r1(grads.r1, inputs.v.batch(), memory_of(threads));
  detail::BatchSum<T> of_r2(grads.r2, inputs.v.batch(), memory_of(threads));
  SoftmaxGrads<T> wanted;
  wanted.q = of_r1.of_sequences();
  wanted.k = of_r2.of_sequences();
  wanted.v = grads.v;
  SoftmaxBackward(call, plans, out, saved, d_out, wanted).run(threads);
  of_r1.finish(threads);
  of_r2.finish(threads);
}

template <class T>
template <class In>
void FactorisedSynthesizerAttention::DecoderForm<T>::check_keys(const DecoderShape& shape,
                                                                const In& from, Index after) {
  if (from.v.is_none()) return;
  detail::check_weight_batch(name(), "r2", from.r2, shape.batch);
  detail::check_extent(name(), "r2", from.r2.shape(), 1, shape.key_heads,
                       "the key_heads of the decoder");
  detail::check_reaches(name(), "r2", from.r2, 2, after);
  detail::check_extent(name(), "r2", from.r2.shape(), 3, shape.width, "the width of the decoder");
}

template <class T>
void FactorisedSynthesizerAttention::DecoderForm<T>::check_rows(const DecoderShape& shape,
                                                                const Inputs<T>& in, Index /*rows*/,
                                                                Index after) {
  detail::check_weight_batch(name(), "r1", in.r1, shape.batch);
  detail::check_extent(name(), "r1", in.r1.shape(), 1, shape.query_heads,
                       "the query_heads of the decoder");
  detail::check_reaches(name(), "r1", in.r1, 2, after);
  detail::check_extent(name(), "r1", in.r1.shape(), 3, shape.width, "the width of the decoder");
}

template <class T>
template <class In>
View<const T> FactorisedSynthesizerAttention::DecoderForm<T>::keys(const DecoderShape& shape,
                                                                   const In& from, Index first,
                                                                   Index count) {
  return detail::for_batch(detail::part_of(from.r2, 2, first, count), shape.batch);
}

template <class T>
void FactorisedSynthesizerAttention::DecoderForm<T>::attach(const DecoderShape& shape,
                                                            const Inputs<T>& in, Index rows,
                                                            Index after, SoftmaxInputs<T>& to,
                                                            const ExecutorRef& /*executor*/) {
  to.q = detail::for_batch(detail::part_of(in.r1, 2, after - rows, rows), shape.batch);
}

FOVEA_IN_FLOAT_UNIT(FOVEA_SYNTHESIZER_FORWARD, FactorisedSynthesizerAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_SYNTHESIZER_FORWARD, FactorisedSynthesizerAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_SYNTHESIZER_FORWARD, FactorisedSynthesizerAttention)
FOVEA_IN_FLOAT_UNIT(FOVEA_SYNTHESIZER_BACKWARD, FactorisedSynthesizerAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_SYNTHESIZER_BACKWARD, FactorisedSynthesizerAttention)

FOVEA_NAMESPACE_END
