// SPDX-License-Identifier: MIT
/// \file
/// Definitions of the passes and decoders of the Synthesizer's forms, which form.hpp and
/// decoder.hpp declare and document.
#pragma once

#include <string>

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/call/compiled.hpp"
#include "fovea/attention/softmax/backward.hpp"
#include "fovea/attention/softmax/forward.hpp"
#include "fovea/attention/softmax/head_plans.hpp"
#include "fovea/attention/synthesizer/form.hpp"
#include "fovea/attention/synthesizer/tensors.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Checks that weights are given once, or for each sequence.
/// \throws std::invalid_argument
template <class U>
void check_weight_batch(const char* op, const char* tensor, const View<U>& x, Index batch) {
  if (x.batch() == 1 || x.batch() == batch) return;
  refuse_extent(op, tensor, x.shape(), 0, "1 or " + std::to_string(batch) + ", the batch of v");
}

/// Checks that the number of heads of a tensor is a multiple of that of v.
/// \throws std::invalid_argument
template <class U, class V>
void check_head_groups(const char* op, const char* tensor, const View<U>& x, const View<V>& v) {
  if (v.heads() == 0 ? x.heads() == 0 : x.heads() % v.heads() == 0) return;
  refuse_extent(op, tensor, x.shape(), 1,
                "a multiple of " + std::to_string(v.heads()) + ", the heads of v");
}

/// Checks the key lengths, and that rows and widths are within the limits for tensors.
/// \throws std::invalid_argument, and as `isa_level`
template <class In>
void check_synthesizer_lengths(const char* op, const In& inputs) {
  static_cast<void>(isa_level());
  check_key_lengths(op, inputs.key_lengths, inputs.v.batch(), "v", inputs.v.rows(), "v");
  constexpr Index most_rows = (std::numeric_limits<Index>::max)() / 8;
  constexpr Index most_width = (std::numeric_limits<Index>::max)() / (Index{1} << 16);
  inputs.for_each_tensor([&](const char* name, const auto& x) {
    if (x.rows() > most_rows) {
      refuse_extent(op, name, x.shape(), 2, "at most " + std::to_string(most_rows));
    }
    if (x.width() > most_width) {
      refuse_extent(op, name, x.shape(), 3, "at most " + std::to_string(most_width));
    }
  });
}

}  // namespace detail

namespace detail {

/// Checks that weights by position cover all tokens so far.
/// \throws std::invalid_argument
template <class U>
void check_reaches(const char* op, const char* tensor, const View<U>& x, std::size_t d,
                   Index after) {
  if (x.shape()[d] >= after) return;
  refuse_extent(op, tensor, x.shape(), d,
                "at least " + std::to_string(after) + ", the tokens in the decoder");
}

template <class Form, class S>
template <class T>
void SynthesizerForm<Form, S>::check(const InputsOf<Form, T>& inputs, const View<T>& out,
                                     const SoftmaxSaved<T>& saved,
                                     const std::optional<Index>& sequence) const {
  check_synthesizer_lengths(Form::name(), inputs);
  Form::check_read(inputs, sequence);
  check_outputs(Form::name(), inputs, out, saved);
}

template <class Form, class S>
template <class T>
void SynthesizerForm<Form, S>::check_backward(const InputsOf<Form, T>& inputs,
                                              const View<const T>& out,
                                              const SoftmaxSaved<T>& saved,
                                              const View<const T>& d_out,
                                              const GradsOf<Form, T>& grads,
                                              const std::optional<Index>& sequence) const {
  check_synthesizer_lengths(Form::name(), inputs);
  Form::check_read(inputs, sequence);
  check_softmax_backward(Form::name(), inputs, out, saved, d_out, grads);
}

template <class Form, class S>
template <class T>
void SynthesizerForm<Form, S>::run(const InputsOf<Form, T>& inputs, const View<T>& out,
                                   const SoftmaxSaved<T>& saved,
                                   const ExecutorRef& executor) const {
  const Range all[] = {{0, inputs.v.rows()}};
  SynthesizerLogits<Form, T> logits(inputs, all, executor, executor.memory());
  const SynthesizedSoftmax<Form> op = softmax();
  const SoftmaxCall<T> call(logits.inputs(), op.softmax_options());
  const HeadPlans plans(op, call);
  const ExecutorRef threads = for_work(executor, [&] {
    const Index of_pair = logits.inputs().q.width() + inputs.v.width();
    return logits.products() + plans.products(call, of_pair);
  });
  SoftmaxForward<T> pass(call, plans, out, saved);
  pass.reserve(threads);
  if (threads.only_counts()) return;
  logits.compute(threads);
  pass.compute(threads);
}

template <class Form, class S>
template <class T>
void SynthesizerForm<Form, S>::run_backward(const InputsOf<Form, T>& inputs,
                                            const View<const T>& out, const SoftmaxSaved<T>& saved,
                                            const View<const T>& d_out,
                                            const GradsOf<Form, T>& grads,
                                            const ExecutorRef& executor) const {
  const Range all[] = {{0, inputs.v.rows()}};
  SynthesizerLogits<Form, T> logits(inputs, all, executor, executor.memory());
  SynthesizerGradients<Form, T> gradients(inputs, grads, executor.memory());
  const SynthesizedSoftmax<Form> op = softmax();
  const SoftmaxCall<T> call(logits.inputs(), op.softmax_options());
  const HeadPlans plans(op, call);
  const ExecutorRef threads = for_work(executor, [&] {
    const Index of_pair = 3 * logits.inputs().q.width() + 2 * inputs.v.width();
    return 3 * logits.products() + plans.products(call, of_pair);
  });
  SoftmaxBackward<T> pass(call, plans, out, saved, d_out, gradients.wanted());
  pass.reserve(threads);
  if (threads.only_counts()) return;
  logits.compute(threads);
  pass.compute(threads);
  gradients.finish(logits, threads);
}

}  // namespace detail

template <class Op, class T>
SynthesizerDecoder<Op, T>::SynthesizerDecoder(const Op& op, const DecoderShape& shape)
    : op_(op), shape_(shape), inner_(Softmax(op.options), Op::softmax_shape(shape)) {}

template <class Op, class T>
Index SynthesizerDecoder<Op, T>::memory_bytes() const {
  return inner_.memory_bytes() + logits_.memory_bytes();
}

template <class Op, class T>
void SynthesizerDecoder<Op, T>::append_tokens(const typename Op::template Tokens<T>& tokens) {
  const Index count = tokens.v.rows();
  Op::check_keys(shape_, tokens, length() + count);
  inner_.append(logits_.keys(shape_, tokens, length(), count), tokens.v);
}

template <class Op, class T>
void SynthesizerDecoder<Op, T>::run_step(const InputsOf<Op, T>& inputs, const View<T>& out,
                                         const SavedOf<Op, T>& saved, const ExecutorRef& executor) {
  const Index count = inputs.v.empty() ? 0 : inputs.v.rows();
  const Index after = length() + count;
  const Index rows = out.rows();
  if (!inputs.key_lengths.empty()) {
    refuse_given(Op::name(), "key_lengths", "a decoder tracks its own length");
  }
  if (rows > after) {
    refuse(Op::name(), "out has " + std::to_string(rows) + " rows",
           "expected at most " + std::to_string(after) + ", the tokens in the decoder");
  }
  Op::check_keys(shape_, inputs, after);
  Op::check_rows(shape_, inputs, rows, after);
  inputs.for_each_tensor([&](const char* name, const auto& x) {
    detail::check_apart(Op::name(), "out", out, name, x);
    detail::check_apart(Op::name(), "lse", saved.lse, name, x);
  });
  SoftmaxInputs<T> made;
  logits_.attach(shape_, inputs, rows, after, made, executor);
  if (count > 0) {
    made.k = logits_.keys(shape_, inputs, length(), count);
    made.v = inputs.v;
  }
  inner_.step(made, out, saved, executor);
}

// In a unit that compiles passes, FOVEA_SYNTHESIZER(Op) instantiates those of a form for float and
// double, and FOVEA_SYNTHESIZER_FORWARD(Op, T) what the forward pass needs for one scalar.
#define FOVEA_SYNTHESIZER_FORWARD(Op, T)                                                           \
  template void detail::SynthesizerForm<Op, Op::Shape>::check<T>(                                  \
      const InputsOf<Op, T>&, const View<T>&, const SoftmaxSaved<T>&, const std::optional<Index>&) \
      const;                                                                                       \
  template void detail::SynthesizerForm<Op, Op::Shape>::run<T>(                                    \
      const InputsOf<Op, T>&, const View<T>&, const SoftmaxSaved<T>&, const ExecutorRef&) const;   \
  template class SynthesizerDecoder<Op, T>;
#define FOVEA_SYNTHESIZER_BACKWARD(Op, T)                                                         \
  template void detail::SynthesizerForm<Op, Op::Shape>::check_backward<T>(                        \
      const InputsOf<Op, T>&, const View<const T>&, const SoftmaxSaved<T>&, const View<const T>&, \
      const GradsOf<Op, T>&, const std::optional<Index>&) const;                                  \
  template void detail::SynthesizerForm<Op, Op::Shape>::run_backward<T>(                          \
      const InputsOf<Op, T>&, const View<const T>&, const SoftmaxSaved<T>&, const View<const T>&, \
      const GradsOf<Op, T>&, const ExecutorRef&) const;
#define FOVEA_SYNTHESIZER(Op)                         \
  FOVEA_IN_FLOAT_UNIT(FOVEA_SYNTHESIZER_FORWARD, Op)  \
  FOVEA_IN_DOUBLE_UNIT(FOVEA_SYNTHESIZER_FORWARD, Op) \
  FOVEA_IN_FLOAT_UNIT(FOVEA_SYNTHESIZER_BACKWARD, Op) \
  FOVEA_IN_DOUBLE_UNIT(FOVEA_SYNTHESIZER_BACKWARD, Op)

FOVEA_NAMESPACE_END
