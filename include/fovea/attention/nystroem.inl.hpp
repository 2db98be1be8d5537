// SPDX-License-Identifier: MIT
/// \file
/// Included by nystroem.hpp, where it is documented.
#pragma once

#include <string>

#include "fovea/attention/call/check.hpp"
#include "fovea/attention/call/compiled.hpp"
#include "fovea/attention/nystroem.hpp"
#include "fovea/attention/nystroem/backward.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T>
void NystroemAttention::check_read(const NystroemInputs<T>& inputs) const {
  detail::check_scale<T>(name(), "scale", options.scale);
  const Index m = options.landmarks;
  constexpr Index most = Index{1} << 20;  // an m x m matrix then has 2^40 elements
  if (m < 1 || m > most) {
    refuse(name(), "landmarks", std::to_string(m), "1 to " + std::to_string(most));
  }
  if (options.iterations < 0 || options.iterations > most) {
    refuse(name(), "iterations", std::to_string(options.iterations),
           "0 to " + std::to_string(most));
  }
  check_inputs(name(), inputs);
  if (!inputs.cu_seqlens_q.empty() || !inputs.cu_seqlens_k.empty()) {
    refuse_given(name(), "cu_seqlens", "the operator does not support packed sequences");
  }
}

template <class T>
void NystroemAttention::check_values(const NystroemInputs<T>& inputs) const {
  if (!inputs.key_lengths.empty()) {
    detail::check_extent(name(), "k", inputs.k.shape(), 2, inputs.q.rows(),
                         "the rows of q: key_lengths are the lengths of queries, too");
  }
  check_sequence(inputs.q.rows(), inputs.k.rows(), inputs.key_lengths);
}

template <class T>
fovea::Shape NystroemAttention::saved_shape(const NystroemInputs<T>& inputs,
                                            std::string_view tensor) const {
  if (tensor == "lse") return detail::row_shape(inputs);
  return landmark_shape(shape_of(inputs), tensor == "landmark_lse" ? 1 : inputs.v.width());
}

template <class T>
void NystroemAttention::run(const NystroemInputs<T>& inputs, const View<T>& out,
                            const NystroemSaved<T>& saved, const ExecutorRef& executor) const {
  auto&& threads = for_work(executor, [&] { return products(shape_of(inputs)); });
  NystroemSteps<T> steps(inputs, options, saved, false, memory_of(threads));
  DenseForward<T> last(steps.last_inputs(), steps.scale, out, saved.lse);
  steps.reserve({}, threads);
  last.reserve(threads);
  if (threads.only_counts()) return;
  steps.compute(threads);
  last.compute(threads);
}

template <class T>
void NystroemAttention::run_backward(const NystroemInputs<T>& inputs, const View<const T>& out,
                                     const NystroemSaved<T>& saved, const View<const T>& d_out,
                                     const NystroemGrads<T>& grads,
                                     const ExecutorRef& executor) const {
  auto&& threads = for_work(executor, [&] { return 2.5 * products(shape_of(inputs)); });
  NystroemBackward<T>(inputs, options, out, saved, d_out, grads, threads).run(threads);
}

FOVEA_COMPILED_FLOAT_AND_DOUBLE_FORWARD(NystroemAttention)
FOVEA_COMPILED_BACKWARD(NystroemAttention)

FOVEA_NAMESPACE_END
