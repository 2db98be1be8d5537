// SPDX-License-Identifier: MIT
/// \file
/// Included by dense_synthesizer.hpp, where it is documented.
#pragma once

#include <string>

#include "fovea/attention/dense_synthesizer.hpp"
#include "fovea/attention/synthesizer/passes.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T>
Index DenseSynthesizerAttention::workspace_bytes(const Shape& shape, Index workers) const {
  using Hidden = detail::HiddenLayer<T>;
  return detail::synthesizer_forward_bytes<T>(softmax(), of_softmax(shape), workers) +
         Hidden::query_bytes(shape) + Hidden::key_bytes(shape) +
         workers * Hidden::worker_bytes(shape.width, shape.hidden);
}

template <class T>
Index DenseSynthesizerAttention::backward_workspace_bytes(const Shape& shape, Index workers) const {
  using Hidden = detail::HiddenLayer<T>;
  return softmax().template backward_workspace_bytes<T>(of_softmax(shape), workers) +
         2 * Hidden::query_bytes(shape) + 2 * Hidden::key_bytes(shape) +
         workers * Hidden::worker_bytes(shape.width, shape.hidden);
}

template <class T>
void DenseSynthesizerAttention::check_read(const Inputs<T>& in,
                                           const std::optional<Index>& sequence) {
  detail::check_synthesizer_lengths(name(), in);
  const Index batch = in.v.batch();
  detail::check_extent(name(), "x", in.x.shape(), 0, batch, "the batch of v");
  detail::check_extent(name(), "x", in.x.shape(), 2, in.v.rows(), "the rows of v");
  check_first_weights(in, batch);
  check_second_weights(in, batch, in.v.heads(), sequence.value_or(in.v.rows()),
                       sequence ? "the rows of the sequence" : "the rows of v");
  detail::check_extent(name(), "w2", in.w2.shape(), 2, in.w1.width(), "the width of w1");
  detail::check_head_groups(name(), "w1", in.w1, in.v);
}

template <class T>
void DenseSynthesizerAttention::check_first_weights(const Inputs<T>& in, Index batch) {
  detail::check_weight_batch(name(), "w1", in.w1, batch);
  if (in.x.heads() != 1) {
    detail::check_extent(name(), "x", in.x.shape(), 1, in.w1.heads(), "the heads of w1, or 1");
  }
  detail::check_extent(name(), "w1", in.w1.shape(), 2, in.x.width(), "the width of x");
  if (in.b1.is_none()) return;
  detail::check_extent(name(), "b1", in.b1.shape(), 0, in.w1.batch(), "the batch of w1");
  detail::check_extent(name(), "b1", in.b1.shape(), 1, in.w1.heads(), "the heads of w1");
  detail::check_extent(name(), "b1", in.b1.shape(), 2, 1, "one row of biases");
  detail::check_extent(name(), "b1", in.b1.shape(), 3, in.w1.width(), "the width of w1");
}

template <class In>
void DenseSynthesizerAttention::check_second_weights(const In& from, Index batch, Index heads,
                                                     Index keys, const char* whose) {
  detail::check_weight_batch(name(), "w2", from.w2, batch);
  detail::check_extent(name(), "w2", from.w2.shape(), 1, heads, "the heads of v");
  if (from.w2.width() < keys) {
    refuse_extent(name(), "w2", from.w2.shape(), 3,
                  "at least " + std::to_string(keys) + ", " + whose);
  }
  if (from.b2.is_none()) return;
  detail::check_extent(name(), "b2", from.b2.shape(), 0, from.w2.batch(), "the batch of w2");
  detail::check_extent(name(), "b2", from.b2.shape(), 1, heads, "the heads of v");
  detail::check_extent(name(), "b2", from.b2.shape(), 2, 1, "one row of biases");
  detail::check_extent(name(), "b2", from.b2.shape(), 3, from.w2.width(), "the width of w2");
}

template <class T>
double DenseSynthesizerAttention::hidden_products(const Inputs<T>& in) {
  return static_cast<double>(in.v.batch() * in.w1.heads() * in.v.rows()) *
         static_cast<double>(in.w1.rows() * in.w1.width());
}

template <class T>
SoftmaxInputs<T> DenseSynthesizerAttention::as_softmax(const Inputs<T>& in,
                                                       detail::HiddenLayer<T>& hidden) {
  return {hidden.queries(), detail::for_batch<T>(hidden.keys(), in.v.batch()), in.v,
          in.key_lengths};
}

template <class T>
auto DenseSynthesizerAttention::threads_for(const Inputs<T>& in, Index of_pair,
                                            const ExecutorRef& executor) const {
  return for_work(executor, [&] {
    return hidden_products(in) + static_cast<double>(of_pair * in.v.batch() * in.w1.heads()) *
                                     static_cast<double>(in.v.rows()) *
                                     static_cast<double>(in.v.rows());
  });
}

template <class T>
void DenseSynthesizerAttention::run(const Inputs<T>& inputs, const View<T>& out,
                                    const Saved<T>& saved, const ExecutorRef& executor) const {
  auto&& threads = threads_for<T>(inputs, inputs.w1.width() + inputs.v.width(), executor);
  detail::HiddenLayer<T> hidden(inputs, inputs.v.batch(), inputs.v.rows());
  hidden.take(worker_count(threads, hidden.most_tasks()), memory_of(threads));
  const auto op = softmax();
  const SoftmaxCall<T> call(as_softmax(inputs, hidden), op.softmax_options());
  const HeadPlans plans(op, call);
  SoftmaxForward pass(call, plans, out, saved);
  pass.reserve(threads);
  memory_of(threads).require();
  hidden.compute(threads);
  pass.compute(threads);
}

template <class T>
void DenseSynthesizerAttention::run_backward(const Inputs<T>& inputs, const View<const T>& out,
                                             const Saved<T>& saved, const View<const T>& d_out,
                                             const Grads<T>& grads,
                                             const ExecutorRef& executor) const {
  auto&& threads = threads_for<T>(inputs, 3 * inputs.w1.width() + 2 * inputs.v.width(), executor);
  auto&& memory = memory_of(threads);
  const Index batch = inputs.v.batch();
  detail::HiddenLayer<T> hidden(inputs, batch, inputs.v.rows());
  hidden.take(worker_count(threads, hidden.most_tasks()), memory);
  const bool of_first = !grads.x.is_none() || !grads.w1.is_none() || !grads.b1.is_none();
  const bool of_second = !grads.w2.is_none() || !grads.b2.is_none();
  const Index row = detail::HiddenLayer<T>::row_of(inputs.w1.width()) * Index{sizeof(T)};
  const auto room = [&](bool is_wanted, Index heads) {
    return is_wanted ? memory.take(batch * heads * inputs.v.rows(), row) : Workspace{};
  };
  Workspace of_queries = room(of_first, inputs.w1.heads());
  Workspace of_keys = room(of_second, inputs.v.heads());
  const auto op = softmax();
  const SoftmaxCall<T> call(as_softmax(inputs, hidden), op.softmax_options());
  const HeadPlans plans(op, call);
  SoftmaxGrads<T> wanted;
  if (of_first) wanted.q = hidden.rows_of(of_queries, batch, inputs.w1.heads());
  if (of_second) wanted.k = hidden.rows_of(of_keys, batch, inputs.v.heads());
  wanted.v = grads.v;
  SoftmaxBackward pass(call, plans, out, saved, d_out, wanted);
  pass.reserve(threads);
  memory.require();
  hidden.compute(threads);
  pass.compute(threads);
  hidden.finish(wanted.q, wanted.k, grads, threads);
}

template <class T>
Index DenseSynthesizerAttention::DecoderForm<T>::memory_bytes() const {
  return keys_.size_bytes() + (hidden_ ? hidden_->memory_bytes() : 0);
}

template <class T>
template <class In>
void DenseSynthesizerAttention::DecoderForm<T>::check_keys(const DecoderShape& shape,
                                                           const In& from, Index after) {
  if (from.v.is_none()) return;
  check_second_weights(from, shape.batch, shape.key_heads, after, "the rows of v");
  detail::check_extent(name(), "w2", from.w2.shape(), 2, shape.width, "the width of the decoder");
}

template <class T>
void DenseSynthesizerAttention::DecoderForm<T>::check_rows(const DecoderShape& shape,
                                                           const Inputs<T>& in, Index rows,
                                                           Index /*after*/) {
  detail::check_extent(name(), "x", in.x.shape(), 0, shape.batch, "the batch of the decoder");
  detail::check_extent(name(), "x", in.x.shape(), 2, rows, "the rows of out");
  check_first_weights(in, shape.batch);
  detail::check_extent(name(), "w1", in.w1.shape(), 1, shape.query_heads,
                       "the query_heads of the decoder");
  detail::check_extent(name(), "w1", in.w1.shape(), 3, shape.width, "the width of the decoder");
}

template <class T>
template <class In>
View<const T> DenseSynthesizerAttention::DecoderForm<T>::keys(const DecoderShape& shape,
                                                              const In& from, Index first,
                                                              Index count) {
  keys_ = detail::KeyColumns<T>(from.w2, from.b2, shape.key_heads, shape.width, count);
  keys_.put(0, first, count);
  return keys_.keys(shape.batch);
}

template <class T>
void DenseSynthesizerAttention::DecoderForm<T>::attach(const DecoderShape& shape,
                                                       const Inputs<T>& in, Index rows,
                                                       Index /*after*/, SoftmaxInputs<T>& to,
                                                       const ExecutorRef& executor) {
  Inputs<T> first = in;
  first.w2 = {nullptr, {0, 0, 0, 0}, {0, 0, 0, 0}};  // its columns are in the decoder
  hidden_.emplace(first, shape.batch, rows);
  hidden_->take(worker_count(executor, hidden_->most_tasks()), SystemMemory{});
  hidden_->compute(executor);
  to.q = hidden_->queries();
}

FOVEA_IN_FLOAT_UNIT(FOVEA_SYNTHESIZER_FORWARD, DenseSynthesizerAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_SYNTHESIZER_FORWARD, DenseSynthesizerAttention)
FOVEA_IN_FLOAT_UNIT(FOVEA_SYNTHESIZER_BACKWARD, DenseSynthesizerAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_SYNTHESIZER_BACKWARD, DenseSynthesizerAttention)

FOVEA_NAMESPACE_END
