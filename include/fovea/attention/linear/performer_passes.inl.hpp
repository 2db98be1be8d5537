// SPDX-License-Identifier: MIT
/// \file
/// Included by performer_passes.hpp, where it is documented.
#pragma once

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/linear/performer_backward.hpp"
#include "fovea/attention/linear/performer_forward.hpp"
#include "fovea/attention/linear/performer_passes.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The multiply-adds of a forward pass.
inline double performer_products(const PerformerShape& s) {
  return static_cast<double>(s.batch) *
         static_cast<double>(s.query_heads * s.queries + s.key_heads * s.keys) *
         static_cast<double>(s.features) * static_cast<double>(s.width + s.value_width);
}

}  // namespace detail

template <class T>
void PerformerPasses<T>::check_read(const Settings& op, const Inputs& inputs) {
  check_inputs(op.name, inputs);
  check_packing(op.name, inputs);
  check_first_positions(op.name, inputs);
  check_alignment(op.name, inputs, op.far_field.alignment, [&] { return op.far_field.causal; });
  const Shape& q = inputs.q.shape();
  check_projection<T>(op.name, inputs.projection, q[3], -1, q[0] * q[1] * q[2] > 0);
}

template <class T>
void PerformerPasses<T>::check(const Settings& op, const Inputs& inputs, const View<T>& out,
                               const Saved& /*saved*/) {
  check_read(op, inputs);
  check_output(op.name, "out", out, inputs, detail::out_shape(inputs));
}

template <class T>
void PerformerPasses<T>::forward(const Settings& op, const Inputs& inputs, const View<T>& out,
                                 const Saved& /*saved*/, const ExecutorRef& executor) {
  const ExecutorRef threads =
      for_work(executor, [&] { return detail::performer_products(shape_of(inputs)); });
  PerformerForward<T>(inputs, op.far_field, out).run(threads);
}

template <class T>
void PerformerBackwardPasses<T>::check(const Settings& op, const Inputs& inputs,
                                       const View<const T>& out, const Saved& saved,
                                       const View<const T>& d_out, const Grads& grads) {
  PerformerPasses<T>::check_read(op, inputs);
  check_rows(op.name, "out", inputs, out);
  check_rows(op.name, "d_out", inputs, d_out);
  check_grads(op.name, inputs, out, saved, d_out, grads);
}

template <class T>
void PerformerBackwardPasses<T>::backward(const Settings& op, const Inputs& inputs,
                                          const Saved& /*saved*/, const View<const T>& d_out,
                                          const Grads& grads, const ExecutorRef& executor) {
  const ExecutorRef threads =
      for_work(executor, [&] { return 2.5 * detail::performer_products(shape_of(inputs)); });
  PerformerBackwardCall<T> call(inputs, op.far_field, d_out, grads);
  if (op.far_field.causal) {
    PerformerCausalBackward<T>(call).run(threads);
  } else {
    PerformerBackward<T>(call).run(threads);
  }
}

FOVEA_FLOAT_AND_DOUBLE_PASSES(PerformerPasses)
FOVEA_FLOAT_AND_DOUBLE_PASSES(PerformerBackwardPasses)

FOVEA_NAMESPACE_END
