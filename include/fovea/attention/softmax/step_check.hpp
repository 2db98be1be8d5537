// SPDX-License-Identifier: MIT
/// \file
/// A softmax decoder's checks at construction and of each step.
#pragma once

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/call/decoder_check.hpp"
#include "fovea/attention/call/step_calls.hpp"
#include "fovea/attention/softmax/passes.hpp"

FOVEA_NAMESPACE_BEGIN

/// Checks the options and the sizes of a decoder for tensors of T.
/// \throws std::invalid_argument
template <class T>
void check_softmax_decoder(const SoftmaxOperatorRef& op, const DecoderShape& shape) {
  op.check_options();
  check_softmax_options<Compute<T>>(op.name(), op.options());
  check_decoder_shape(op.name(), shape, op.options().alignment);
}

/// Checks a step of a decoder of this shape with `length` tokens before the step.
/// \throws std::invalid_argument
template <class T>
void check_softmax_step(const SoftmaxOperatorRef& op, const DecoderShape& shape, Index length,
                        const SoftmaxInputs<T>& inputs, const View<T>& out,
                        const SoftmaxSaved<T>& saved) {
  if (detail::has_new_tokens(inputs)) {
    check_decoder_tokens(op.name(), shape, inputs.k, inputs.v, kMostDecoderTokens - length);
  }
  const Index after = length + detail::new_tokens(inputs);
  check_decoder_rows(op.name(), shape, inputs, after);
  // Only the sizes of k and v matter now, so one element represents all of them.
  static const T element{};
  SoftmaxInputs<T> all = inputs;
  all.k = {&element, {shape.batch, shape.key_heads, after, shape.width}, {}};
  all.v = {&element, {shape.batch, shape.key_heads, after, shape.value_width}, {}};
  SoftmaxPasses<T>::check_tensors(op, all, out, saved, {});
  const auto check_apart = [&](const char* name, const auto& written) {
    detail::check_apart(op.name(), name, written, "k", inputs.k);
    detail::check_apart(op.name(), name, written, "v", inputs.v);
  };
  check_apart("out", out);
  check_apart("lse", saved.lse);
}

FOVEA_NAMESPACE_END
