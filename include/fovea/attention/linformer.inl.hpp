// SPDX-License-Identifier: MIT
/// \file
/// Included by linformer.hpp, where it is documented.
#pragma once

#include <array>
#include <string>

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/call/compiled.hpp"
#include "fovea/attention/call/logit_scale.hpp"
#include "fovea/attention/linformer.hpp"
#include "fovea/attention/linformer/projection.hpp"
#include "fovea/attention/softmax/dense.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T>
void LinformerAttention::check_read(const LinformerInputs<T>& inputs) const {
  detail::check_scale<T>(name(), "scale", options.scale);
  check_inputs(name(), inputs);
  if (!inputs.cu_seqlens_q.empty() || !inputs.cu_seqlens_k.empty()) {
    refuse_given(name(), "cu_seqlens", "the projections have a fixed length");
  }
  const Extents& e = inputs.key_projection.shape();
  check_projection(inputs, "key_projection", inputs.key_projection, e[2]);
  check_projection(inputs, "value_projection", inputs.value_projection, e[2]);
}

template <class T>
fovea::Shape LinformerAttention::saved_shape(const LinformerInputs<T>& inputs,
                                             std::string_view tensor) {
  if (tensor == "lse") return detail::row_shape(inputs);
  const LinformerShape s = shape_of(inputs);
  return tensor == "projected_keys" ? s.key_shape() : s.value_shape();
}

template <class T>
void LinformerAttention::check_projection(const LinformerInputs<T>& inputs, const char* tensor,
                                          const View<const T>& x, Index rows) {
  const Extents& s = x.shape();
  if (x.empty()) {
    if (inputs.q.batch() * inputs.k.heads() == 0) return;
    refuse_missing(name(), tensor, "[1, 1 or Hk, P, Nk], which projects Nk rows to P");
  }
  const Index heads = inputs.k.heads();
  detail::check_extent(name(), tensor, s, 0, 1, "since all sequences share it");
  if (s[1] != 1 && s[1] != heads) {
    refuse_extent(name(), tensor, s, 1, "1 or " + std::to_string(heads) + ", the heads of k");
  }
  if (s[2] < 1) refuse_extent(name(), tensor, s, 2, "at least 1, the number of projected keys");
  detail::check_extent(name(), tensor, s, 2, rows, "the rows of key_projection");
  detail::check_extent(name(), tensor, s, 3, inputs.k.rows(), "the rows of k");
}

template <class T>
void LinformerAttention::run(const LinformerInputs<T>& inputs, const View<T>& out,
                             const LinformerSaved<T>& saved, const ExecutorRef& executor) const {
  const LinformerShape s = shape_of(inputs);
  auto&& threads = for_work(executor, [&] { return products(s); });
  auto&& memory = memory_of(threads);
  ScratchTensor<T> keys(s.key_shape(), memory);
  ScratchTensor<T> values(s.value_shape(), memory);
  const LinformerProjection<T> projection(s, inputs.key_lengths);
  Workspace scratch = memory.take(worker_count(threads, projection.most_tasks()),
                                  LinformerProjection<T>::scratch_elements(s) * Index{sizeof(T)});
  DenseForward<T> attention({.q = inputs.q, .k = keys.view(), .v = values.view()},
                            detail::logit_scale<T>(options.scale, s.width), out, saved.lse);
  attention.reserve(threads);
  if (threads.only_counts()) return;
  projection.project({LinformerProduct<T>{inputs.key_projection, inputs.k, keys.view(), {}},
                      LinformerProduct<T>{inputs.value_projection, inputs.v, values.view(), {}}},
                     scratch.template data<T>(), threads);
  attention.compute(threads);
  detail::copy_tensor<T>(keys.view(), saved.projected_keys);
  detail::copy_tensor<T>(values.view(), saved.projected_values);
}

template <class T>
void LinformerAttention::run_backward(const LinformerInputs<T>& inputs, const View<const T>& out,
                                      const LinformerSaved<T>& saved, const View<const T>& d_out,
                                      const LinformerGrads<T>& grads,
                                      const ExecutorRef& executor) const {
  const LinformerShape s = shape_of(inputs);
  auto&& threads = for_work(executor, [&] { return 2.5 * products(s); });
  auto&& memory = memory_of(threads);
  const bool projects = !saved.has_projected();
  ScratchTensor<T> own_keys(projects ? s.key_shape() : Extents{}, memory);
  ScratchTensor<T> own_values(projects ? s.value_shape() : Extents{}, memory);
  ScratchTensor<T> d_keys(s.key_shape(), memory);
  ScratchTensor<T> d_values(s.value_shape(), memory);
  const LinformerProjection<T> projection(s, inputs.key_lengths);
  Workspace scratch = memory.take(worker_count(threads, projection.most_tasks()),
                                  LinformerProjection<T>::scratch_elements(s) * Index{sizeof(T)});
  const View<T> keys = projects ? own_keys.view() : View<T>(saved.projected_keys);
  const View<T> values = projects ? own_values.view() : View<T>(saved.projected_values);
  DenseBackward<T> attention({.q = inputs.q, .k = keys, .v = values},
                             detail::logit_scale<T>(options.scale, s.width), out, saved.lse, d_out,
                             {grads.q, d_keys.view(), d_values.view()});
  attention.take_scratch(threads);
  attention.look_at_lse(threads);
  if (threads.only_counts()) return;
  const std::array<LinformerProduct<T>, 2> both = {
      LinformerProduct<T>{inputs.key_projection, inputs.k, own_keys.view(), d_keys.view(),
                          grads.key_projection, grads.k},
      LinformerProduct<T>{inputs.value_projection, inputs.v, own_values.view(), d_values.view(),
                          grads.value_projection, grads.v}};
  if (projects) projection.project(both, scratch.template data<T>(), threads);
  attention.compute(threads);
  projection.backward(both, scratch.template data<T>(), threads);
}

FOVEA_COMPILED_FLOAT_AND_DOUBLE_FORWARD(LinformerAttention)
FOVEA_COMPILED_BACKWARD(LinformerAttention)

FOVEA_NAMESPACE_END
