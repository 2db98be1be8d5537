// SPDX-License-Identifier: MIT
/// \file
/// Included by hidden_state_cross.hpp, which documents it.
#pragma once

#include <algorithm>
#include <utility>

#include "fovea/core/tensor_check.hpp"
#include "fovea/spectral/cross_backward.hpp"
#include "fovea/spectral/cross_check.hpp"
#include "fovea/spectral/cross_forward.hpp"
#include "fovea/spectral/hidden_state_cross.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The cost of a pass, in multiply-adds.
template <class T>
double cross_products(const CrossInputs<T>& inputs) {
  constexpr double of_element = 256;  // measured; depends little on the logarithm of the length
  return of_element * static_cast<double>(inputs.f1.size());
}

/// The number of workers with a task.
template <class T>
Index busy_cross_workers(Index batch, Index length, Index channels, Index workers) {
  const Index tasks = batch * ((channels + kCrossChannels<T> - 1) / kCrossChannels<T>);
  return length == 0 ? 0 : (std::min)(tasks, workers);
}

}  // namespace detail

template <class T>
void HiddenStateCross::check(const CrossInputs<T>& inputs, const View<T>& out) const {
  check_cross_inputs(name(), inputs);
  check_cross_output(name(), "out", out, inputs);
}

template <class T>
void HiddenStateCross::check_backward(const CrossInputs<T>& inputs, const View<const T>& d_out,
                                      const CrossGrads<T>& grads) const {
  check_cross_inputs(name(), inputs);
  detail::check_extents(name(), "d_out", d_out.shape(), inputs.f1.shape(), "the shape of f1");
  constexpr const char* f1 = "the gradient of f1";
  constexpr const char* f2 = "the gradient of f2";
  for (const auto& [tensor, grad] : {std::pair{f1, grads.f1}, std::pair{f2, grads.f2}}) {
    if (grad.empty()) continue;
    check_cross_output(name(), tensor, grad, inputs);
    detail::check_apart(name(), tensor, grad, "d_out", d_out);
  }
  detail::check_apart(name(), f2, grads.f2, f1, grads.f1);
}

template <class T>
Index HiddenStateCross::workspace_bytes(Index batch, Index length, Index channels,
                                        Index workers) const {
  return CrossForward<T>::workspace_bytes(
      length, detail::busy_cross_workers<T>(batch, length, channels, workers));
}

template <class T>
Index HiddenStateCross::backward_workspace_bytes(Index batch, Index length, Index channels,
                                                 Index workers) const {
  return CrossBackward<T>::workspace_bytes(
      length, detail::busy_cross_workers<T>(batch, length, channels, workers));
}

template <class T>
void HiddenStateCross::run(const CrossInputs<T>& inputs, const View<T>& out,
                           const ExecutorRef& executor) const {
  CrossForward<T>(inputs, out, options.planning).run(for_work(executor, [&] {
    return detail::cross_products(inputs);
  }));
}

template <class T>
void HiddenStateCross::run_backward(const CrossInputs<T>& inputs, const View<const T>& d_out,
                                    const CrossGrads<T>& grads, const ExecutorRef& executor) const {
  CrossBackward<T>(inputs, d_out, grads, options.planning).run(for_work(executor, [&] {
    return detail::cross_products(inputs);
  }));
}

#define FOVEA_CROSS_MEMBERS(Op, T)                                                           \
  template void Op::check<T>(const CrossInputs<T>&, const View<T>&) const;                   \
  template void Op::check_backward<T>(const CrossInputs<T>&, const View<const T>&,           \
                                      const CrossGrads<T>&) const;                           \
  template void Op::run<T>(const CrossInputs<T>&, const View<T>&, const ExecutorRef&) const; \
  template void Op::run_backward<T>(const CrossInputs<T>&, const View<const T>&,             \
                                    const CrossGrads<T>&, const ExecutorRef&) const;         \
  template Index Op::workspace_bytes<T>(Index, Index, Index, Index) const;                   \
  template Index Op::backward_workspace_bytes<T>(Index, Index, Index, Index) const;
FOVEA_IN_FLOAT_UNIT(FOVEA_CROSS_MEMBERS, HiddenStateCross)
FOVEA_IN_DOUBLE_UNIT(FOVEA_CROSS_MEMBERS, HiddenStateCross)

FOVEA_NAMESPACE_END
