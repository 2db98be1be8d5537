// SPDX-License-Identifier: MIT
/// \file
/// Included by sinkhorn.hpp, where it is documented.
#pragma once

#include "fovea/attention/call/compiled.hpp"
#include "fovea/attention/sinkhorn.hpp"
#include "fovea/attention/sinkhorn/check.hpp"
#include "fovea/attention/sinkhorn/passes.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T>
void SinkhornAttention::check_read(const Inputs<T>& inputs) const {
  check_sinkhorn_inputs(name(), options, inputs);
}

template <class T>
void SinkhornAttention::run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved,
                            const ExecutorRef& executor) const {
  const SinkhornCall<T> call{options, inputs};
  const AttentionShape& s = call.shape;
  auto&& threads = for_work(executor, [&] { return products(s, s.width + s.value_width, 1); });
  SinkhornForward<T>(call, out, saved).run(threads);
}

template <class T>
void SinkhornAttention::run_backward(const Inputs<T>& inputs, const View<const T>& out,
                                     const Saved<T>& saved, const View<const T>& d_out,
                                     const Grads<T>& grads, const ExecutorRef& executor) const {
  const SinkhornCall<T> call{options, inputs};
  const AttentionShape& s = call.shape;
  auto&& threads =
      for_work(executor, [&] { return products(s, 3 * s.width + 2 * s.value_width, 3); });
  SinkhornBackward<T>(call, out, saved, d_out, grads).run(threads);
}

FOVEA_COMPILED_FLOAT_AND_DOUBLE_FORWARD(SinkhornAttention)
FOVEA_COMPILED_BACKWARD(SinkhornAttention)

FOVEA_NAMESPACE_END
