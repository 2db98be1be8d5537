// SPDX-License-Identifier: MIT
/// \file
/// Included by indexed.hpp, where it is documented.
#pragma once

#include "fovea/attention/call/compiled.hpp"
#include "fovea/attention/indexed.hpp"
#include "fovea/attention/indexed/backward.hpp"
#include "fovea/attention/indexed/check.hpp"
#include "fovea/attention/softmax/options.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T>
void IndexedAttention::check_read(const Inputs<T>& inputs) const {
  check_softmax_options<Compute<T>>(name(), {.scale = options.scale});
  check_inputs(name(), inputs);
  check_packing(name(), inputs);
  check_first_positions(name(), inputs);
  check_alignment(name(), inputs, options.alignment, [&] { return options.causal; });
}

template <class T>
void IndexedAttention::check_values(const Inputs<T>& inputs) const {
  check_indices(name(), inputs);
}

template <class T>
void IndexedAttention::run_backward(const Inputs<T>& inputs, const View<const T>& out,
                                    const Saved<T>& saved, const View<const T>& d_out,
                                    const Grads<T>& grads, const ExecutorRef& executor) const {
  const TensorLists lists(inputs.indices, inputs.k.rows(), options);
  auto&& threads = for_work(executor, [&] { return list_products(shape_of(inputs), lists); });
  IndexedBackward<T>(inputs, lists, out, saved, d_out, grads).run(threads);
}

template <class T>
void IndexedAttention::run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved,
                           const ExecutorRef& executor) const {
  const TensorLists lists(inputs.indices, inputs.k.rows(), options);
  auto&& threads = for_work(executor, [&] { return list_products(shape_of(inputs), lists); });
  IndexedForward<T>(inputs, lists, out, saved).run(threads);
}

FOVEA_COMPILED_FORWARD(IndexedAttention)
FOVEA_COMPILED_BACKWARD(IndexedAttention)

FOVEA_NAMESPACE_END
