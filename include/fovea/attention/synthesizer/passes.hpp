// SPDX-License-Identifier: MIT
/// \file
/// What defines the passes and decoders of the forms of the Synthesizer: form.hpp and decoder.hpp
/// declare and document them.
#pragma once

#include <string>

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/call/compiled.hpp"
#include "fovea/attention/softmax/backward.hpp"
#include "fovea/attention/softmax/forward.hpp"
#include "fovea/attention/softmax/head_plans.hpp"
#include "fovea/attention/synthesizer/check.hpp"
#include "fovea/attention/synthesizer/form.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// A tensor that a decoder reads whole must go to the end of the tokens, or beyond.
/// \throws std::invalid_argument
template <class U>
void check_reaches(const char* op, const char* tensor, const View<U>& x, std::size_t d,
                   Index after) {
  if (x.shape()[d] >= after) return;
  refuse_extent(op, tensor, x.shape(), d,
                "at least " + std::to_string(after) + ", the tokens in the decoder");
}

/// Bytes of scratch memory of the forward pass of a form's softmax.
template <class T>
Index synthesizer_forward_bytes(const HeadPatterns& softmax, const AttentionShape& shape,
                                Index workers) {
  const HeadPlans plans(
      softmax, shape.query_heads,
      SequenceShape::of(shape.queries, shape.keys, CausalAlignment::bottom_right));
  return SoftmaxForward<T>::workspace_bytes(shape, plans, workers);
}

template <class Form>
template <class T>
void SynthesizerForm<Form>::check(const InputsOf<Form, T>& inputs, const View<T>& out,
                                  const SavedOf<Form, T>& saved) const {
  check_tensors(inputs, out, saved);
}

template <class Form>
template <class T>
void SynthesizerForm<Form>::check_tensors(const InputsOf<Form, T>& inputs, const View<T>& out,
                                          const SavedOf<Form, T>& saved,
                                          const std::optional<Index>& sequence) const {
  Form::check_read(inputs, sequence);
  check_outputs(Form::name(), inputs, out, saved);
}

template <class Form>
template <class T>
void SynthesizerForm<Form>::check_backward(const InputsOf<Form, T>& inputs,
                                           const View<const T>& out, const SavedOf<Form, T>& saved,
                                           const View<const T>& d_out,
                                           const GradsOf<Form, T>& grads) const {
  check_backward_tensors(inputs, out, saved, d_out, grads);
}

template <class Form>
template <class T>
void SynthesizerForm<Form>::check_backward_tensors(const InputsOf<Form, T>& inputs,
                                                   const View<const T>& out,
                                                   const SavedOf<Form, T>& saved,
                                                   const View<const T>& d_out,
                                                   const GradsOf<Form, T>& grads,
                                                   const std::optional<Index>& sequence) const {
  Form::check_read(inputs, sequence);
  check_softmax_backward(Form::name(), inputs, out, saved, d_out, grads);
}

}  // namespace detail

template <class Op, class T>
SynthesizerDecoder<Op, T>::SynthesizerDecoder(const Op& op, const DecoderShape& shape)
    : op_(op), shape_(shape), inner_(Softmax(op.options), Form::softmax_shape(shape)) {}

template <class Op, class T>
Index SynthesizerDecoder<Op, T>::memory_bytes() const {
  return inner_.memory_bytes() + form_.memory_bytes();
}

template <class Op, class T>
void SynthesizerDecoder<Op, T>::append_tokens(const typename Op::template Tokens<T>& tokens) {
  const Index count = tokens.v.rows();
  Form::check_keys(shape_, tokens, length() + count);
  inner_.append(form_.keys(shape_, tokens, length(), count), tokens.v);
}

template <class Op, class T>
void SynthesizerDecoder<Op, T>::run_step(const InputsOf<Op, T>& inputs, const View<T>& out,
                                         const SavedOf<Op, T>& saved, const ExecutorRef& executor) {
  const Index count = inputs.v.is_none() ? 0 : inputs.v.rows();
  const Index after = length() + count;
  const Index rows = out.rows();
  if (!inputs.key_lengths.empty()) {
    refuse_given(Op::name(), "key_lengths", "a decoder keeps its own length");
  }
  if (rows > after) {
    refuse(Op::name(), "out has " + std::to_string(rows) + " rows",
           "expected at most " + std::to_string(after) + ", the tokens in the decoder");
  }
  Form::check_keys(shape_, inputs, after);
  Form::check_rows(shape_, inputs, rows, after);
  inputs.for_each_tensor([&](const char* name, const auto& x) {
    detail::check_apart(Op::name(), "out", out, name, x);
    detail::check_apart(Op::name(), "lse", saved.lse, name, x);
  });
  SoftmaxInputs<T> made;
  form_.attach(shape_, inputs, rows, after, made, executor);
  if (count > 0) {
    made.k = form_.keys(shape_, inputs, length(), count);
    made.v = inputs.v;
  }
  inner_.step(made, out, saved, executor);
}

// In a unit that compiles passes, FOVEA_SYNTHESIZER_FORWARD(Op, T) and
// FOVEA_SYNTHESIZER_BACKWARD(Op, T) instantiate those of a form.
#define FOVEA_SYNTHESIZER_FORWARD(Op, T)                                                          \
  template void detail::SynthesizerForm<Op>::check<T>(const InputsOf<Op, T>&, const View<T>&,     \
                                                      const SavedOf<Op, T>&) const;               \
  template void detail::SynthesizerForm<Op>::check_tensors<T>(                                    \
      const InputsOf<Op, T>&, const View<T>&, const SavedOf<Op, T>&, const std::optional<Index>&) \
      const;                                                                                      \
  template void Op::run<T>(const InputsOf<Op, T>&, const View<T>&, const SavedOf<Op, T>&,         \
                           const ExecutorRef&) const;                                             \
  template Index Op::workspace_bytes<T>(const typename Op::Shape&, Index) const;                  \
  template class SynthesizerDecoder<Op, T>;
#define FOVEA_SYNTHESIZER_BACKWARD(Op, T)                                                        \
  template void detail::SynthesizerForm<Op>::check_backward<T>(                                  \
      const InputsOf<Op, T>&, const View<const T>&, const SavedOf<Op, T>&, const View<const T>&, \
      const GradsOf<Op, T>&) const;                                                              \
  template void detail::SynthesizerForm<Op>::check_backward_tensors<T>(                          \
      const InputsOf<Op, T>&, const View<const T>&, const SavedOf<Op, T>&, const View<const T>&, \
      const GradsOf<Op, T>&, const std::optional<Index>&) const;                                 \
  template void Op::run_backward<T>(const InputsOf<Op, T>&, const View<const T>&,                \
                                    const SavedOf<Op, T>&, const View<const T>&,                 \
                                    const GradsOf<Op, T>&, const ExecutorRef&) const;            \
  template Index Op::backward_workspace_bytes<T>(const typename Op::Shape&, Index) const;

FOVEA_NAMESPACE_END
