// SPDX-License-Identifier: MIT
/// \file
/// Included by indexed.hpp, where it is documented.
#pragma once

#include <algorithm>

#include "fovea/attention/call/compiled.hpp"
#include "fovea/attention/indexed.hpp"
#include "fovea/attention/indexed/backward.hpp"
#include "fovea/attention/indexed/check.hpp"
#include "fovea/attention/softmax/options.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The number of places of a list that can hold a key.
inline Index key_places(const IndexedShape& shape) {
  return (std::min)(shape.keys_per_row, shape.keys);
}

}  // namespace detail

template <class T>
void IndexedAttention::check(const InputsOf<IndexedAttention, T>& inputs, const View<T>& out,
                             const SavedOf<IndexedAttention, T>& saved) const {
  check_tensors(inputs, out, saved);
  check_indices(name(), inputs);
}

template <class T>
void IndexedAttention::check_tensors(const Inputs<T>& inputs, const View<T>& out,
                                     const Saved<T>& saved) const {
  check_read(inputs);
  check_outputs(name(), inputs, out, saved);
}

template <class T>
void IndexedAttention::check_backward(const InputsOf<IndexedAttention, T>& inputs,
                                      const View<const T>& out,
                                      const SavedOf<IndexedAttention, T>& saved,
                                      const View<const T>& d_out,
                                      const GradsOf<IndexedAttention, T>& grads) const {
  check_backward_tensors(inputs, out, saved, d_out, grads);
  check_indices(name(), inputs);
}

template <class T>
void IndexedAttention::check_backward_tensors(const Inputs<T>& inputs, const View<const T>& out,
                                              const Saved<T>& saved, const View<const T>& d_out,
                                              const Grads<T>& grads) const {
  check_read(inputs);
  check_softmax_backward(name(), inputs, out, saved, d_out, grads);
}

template <class T>
Index IndexedAttention::workspace_bytes(const IndexedShape& shape, Index workers) const {
  return IndexedForward<T>::workspace_bytes(shape, detail::key_places(shape), workers);
}

template <class T>
Index IndexedAttention::backward_workspace_bytes(const IndexedShape& shape, Index workers) const {
  const Index entries = shape.queries * detail::key_places(shape);
  return IndexedBackward<T>::workspace_bytes(shape, detail::key_places(shape), entries, workers);
}

template <class T>
void IndexedAttention::check_read(const Inputs<T>& inputs) const {
  check_softmax_options<Compute<T>>(name(), {.scale = options.scale});
  check_inputs(name(), inputs);
  check_packing(name(), inputs);
  check_first_positions(name(), inputs);
  check_alignment(name(), inputs, options.alignment, [&] { return options.causal; });
}

template <class T>
void IndexedAttention::run_backward(const InputsOf<IndexedAttention, T>& inputs,
                                    const View<const T>& out,
                                    const SavedOf<IndexedAttention, T>& saved,
                                    const View<const T>& d_out,
                                    const GradsOf<IndexedAttention, T>& grads,
                                    const ExecutorRef& executor) const {
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

#define FOVEA_INDEXED_CHECK(Op, T)                                                              \
  template void Op::check_tensors<T>(const Op::Inputs<T>&, const View<T>&, const Op::Saved<T>&) \
      const;
#define FOVEA_INDEXED_BACKWARD(Op, T)                                                     \
  template void Op::check_backward_tensors<T>(const Op::Inputs<T>&, const View<const T>&, \
                                              const Op::Saved<T>&, const View<const T>&,  \
                                              const Op::Grads<T>&) const;                 \
  template Index Op::backward_workspace_bytes<T>(const Op::Shape&, Index) const;
FOVEA_IN_FLOAT_UNIT(FOVEA_INDEXED_CHECK, IndexedAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_INDEXED_CHECK, IndexedAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_INDEXED_CHECK, IndexedAttention)
FOVEA_IN_FLOAT_UNIT(FOVEA_INDEXED_BACKWARD, IndexedAttention)
FOVEA_IN_DOUBLE_UNIT(FOVEA_INDEXED_BACKWARD, IndexedAttention)

FOVEA_NAMESPACE_END
