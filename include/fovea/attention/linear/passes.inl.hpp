// SPDX-License-Identifier: MIT
/// \file
/// Included by passes.hpp, where it is documented.
#pragma once

#include "fovea/attention/linear/backward.hpp"
#include "fovea/attention/linear/check.hpp"
#include "fovea/attention/linear/decoder_core.inl.hpp"
#include "fovea/attention/linear/forward.hpp"
#include "fovea/attention/linear/passes.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T, bool kSums, bool kDelta>
void LinearPasses<T, kSums, kDelta>::check_options(const Settings& op) {
  check_denominator<Compute<T>>(op.name, op.far_field.denominator);
}

template <class T, bool kSums, bool kDelta>
void LinearPasses<T, kSums, kDelta>::check_read(const Settings& op,
                                                const LinearFamilyInputs<T>& inputs) {
  check_options(op);
  check_far_inputs(op, inputs);
}

template <class T, bool kSums, bool kDelta>
void LinearPasses<T, kSums, kDelta>::check(const Settings& op, const LinearFamilyInputs<T>& inputs,
                                           const View<T>& out, const Saved& /*saved*/) {
  check_read(op, inputs);
  check_output(op.name, "out", out, inputs, detail::out_shape(inputs));
}

template <class T, bool kSums, bool kDelta>
void LinearPasses<T, kSums, kDelta>::forward(const Settings& op,
                                             const LinearFamilyInputs<T>& inputs,
                                             const View<T>& out, const Saved& /*saved*/,
                                             const ExecutorRef& executor) {
  const ExecutorRef threads = for_work(executor, [&] { return op.products(shape_of(inputs)); });
  const FarWeights<Compute<T>> weights = op.weights(inputs);
  LinearForward(inputs, op.far_field, weights, out).run(threads);
}

template <class T, bool kSums, bool kDelta>
void LinearBackwardPasses<T, kSums, kDelta>::check(
    const Settings& op, const LinearFamilyInputs<T>& inputs, const View<const T>& out,
    const LinearSaved<T>& saved, const View<const T>& d_out, const LinearFamilyGrads<T>& grads) {
  LinearPasses<T, kSums, kDelta>::check_read(op, inputs);
  check_rows(op.name, "out", inputs, out);
  check_rows(op.name, "d_out", inputs, d_out);
  check_grads(op.name, inputs, out, saved, d_out, grads);
}

template <class T, bool kSums, bool kDelta>
void LinearBackwardPasses<T, kSums, kDelta>::backward(
    const Settings& op, const LinearFamilyInputs<T>& inputs, const LinearSaved<T>& /*saved*/,
    const View<const T>& d_out, const LinearFamilyGrads<T>& grads, const ExecutorRef& executor) {
  const ExecutorRef threads =
      for_work(executor, [&] { return 2.5 * op.products(shape_of(inputs)); });
  const FarWeights<T> weights = op.weights(inputs);
  LinearBackward pass(inputs, op.far_field, weights, d_out, grads, false);
  pass.reserve(false, threads);
  if (!threads.only_counts()) pass.compute(nullptr, threads);
}

// An operator's terms are summed or written by the delta rule.
#define FOVEA_LINEAR_PASSES(Class, T)   \
  template class Class<T, true, false>; \
  template class Class<T, false, true>;
#define FOVEA_LINEAR_FORWARD(Class, T)                     \
  FOVEA_LINEAR_PASSES(Class, T)                            \
  template class LinearDecoderCore<Class<T, true, false>>; \
  template class LinearDecoderCore<Class<T, false, true>>;
FOVEA_IN_FLOAT_UNIT(FOVEA_LINEAR_FORWARD, LinearPasses)
FOVEA_IN_DOUBLE_UNIT(FOVEA_LINEAR_FORWARD, LinearPasses)
FOVEA_IN_SHORT_UNIT(FOVEA_LINEAR_FORWARD, LinearPasses)
FOVEA_IN_FLOAT_UNIT(FOVEA_LINEAR_PASSES, LinearBackwardPasses)
FOVEA_IN_DOUBLE_UNIT(FOVEA_LINEAR_PASSES, LinearBackwardPasses)

FOVEA_NAMESPACE_END
