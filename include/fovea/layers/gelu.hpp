// SPDX-License-Identifier: MIT
/// \file
/// GELU in its tanh form (Hendrycks and Gimpel 2016), which needs no erf: y = x / 2
/// (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). It differs from x Phi(x) by at most 5e-4.
#pragma once

#include "fovea/layers/elementwise.hpp"

FOVEA_NAMESPACE_BEGIN

/// GELU of activations [B, 1, L, C] of any C. It learns nothing, and costs one exponential per
/// element.
template <class T>
class Gelu : public LayerCalls<Gelu<T>, T> {
 public:
  /// Nothing is kept, because backward reads x again.
  struct Saved {};

  using LayerCalls<Gelu<T>, T>::forward;
  /// Computes y.
  /// \throws std::invalid_argument with a message that names tensor, dimension, expected and got
  template <class E = Serial>
  void forward(const View<const T>& x, const View<T>& y, Saved& /*saved*/,
               E&& executor = {}) const {
    check_forward("Gelu", x, x.width(), y, x.width());
    detail::map_activations<T>(&LayerKernels<T>::gelu, x, {}, y, as_executor(executor));
  }

  /// Writes d_x, which may be d_y. \throws as `forward`
  template <class E = Serial>
  void backward(const View<const T>& x, Saved& /*saved*/, const View<const T>& d_y,
                const View<T>& d_x, E&& executor = {}) {
    check_activations("Gelu", "x", x, x.width());
    check_alike("Gelu", "d_y", d_y, x.width(), x);
    check_alike("Gelu", "d_x", d_x, x.width(), x);
    check_written("Gelu", "d_x", d_x, "x", x);
    detail::map_activations<T>(&LayerKernels<T>::gelu_grad, x, d_y, d_x, as_executor(executor));
  }
};

FOVEA_NAMESPACE_END
