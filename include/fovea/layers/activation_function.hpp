// SPDX-License-Identifier: MIT
/// \file
/// Element-wise functions between a network's linear maps.
#pragma once

#include "fovea/layers/elementwise.hpp"
#include "fovea/layers/token_sums.hpp"

FOVEA_NAMESPACE_BEGIN

/// An element-wise function.
enum class ActivationKind {
  gelu,       ///< x Phi(x), where Phi is the distribution function of the normal distribution
  gelu_tanh,  ///< the tanh approximation of GELU (GeluForm::tanh)
  relu,       ///< max(x, 0), with slope 0 at 0
  silu,       ///< x sigmoid(x), also called swish
  tanh,       ///< the hyperbolic tangent
  identity,   ///< x
};

namespace detail {

/// y = f(x) for activations. y may be x.
template <class T, class E>
void activate(ActivationKind kind, const View<const T>& x, const View<T>& y, E&& executor) {
  using Kernels = LayerKernels<T>;
  add_to_collective_check(executor, "ActivationFunction", kind);
  switch (kind) {
    case ActivationKind::gelu:
      return map_activations<&Kernels::gelu, T>(x, {}, y, executor);
    case ActivationKind::gelu_tanh:
      return map_activations<&Kernels::gelu_tanh, T>(x, {}, y, executor);
    case ActivationKind::relu:
      return map_activations<&Kernels::relu, T>(x, {}, y, executor);
    case ActivationKind::silu:
      return map_activations<&Kernels::silu, T>(x, {}, y, executor);
    case ActivationKind::tanh:
      return map_activations<&Kernels::tanh, T>(x, {}, y, executor);
    case ActivationKind::identity:
      return copy_activations<T>(x, y, executor);
  }
}

/// d_x = f'(x) d_y for activations. d_x may be d_y.
template <class T, class E>
void activate_backward(ActivationKind kind, const View<const T>& x, const View<const T>& d_y,
                       const View<T>& d_x, E&& executor) {
  using Kernels = LayerKernels<T>;
  add_to_collective_check(executor, "ActivationFunction", kind);
  switch (kind) {
    case ActivationKind::gelu:
      return map_activations<&Kernels::gelu_grad, T>(x, d_y, d_x, executor);
    case ActivationKind::gelu_tanh:
      return map_activations<&Kernels::gelu_tanh_grad, T>(x, d_y, d_x, executor);
    case ActivationKind::relu:
      return map_activations<&Kernels::relu_grad, T>(x, d_y, d_x, executor);
    case ActivationKind::silu:
      return map_activations<&Kernels::silu_grad, T>(x, d_y, d_x, executor);
    case ActivationKind::tanh:
      return map_activations<&Kernels::tanh_grad, T>(x, d_y, d_x, executor);
    case ActivationKind::identity:
      return copy_activations<T>(d_y, d_x, executor);
  }
}

}  // namespace detail

/// An element-wise function of activations [B, 1, L, C]. It has no parameters.
template <class T>
class ActivationFunction : public LayerCalls<ActivationFunction<T>, T> {
 public:
  ActivationKind kind = ActivationKind::gelu;  ///< The function.

  /// GELU.
  ActivationFunction() = default;
  /// Uses the given function.
  explicit ActivationFunction(ActivationKind chosen) : kind(chosen) {}

  /// Empty: backward reads x again.
  struct Saved {};

  using LayerCalls<ActivationFunction<T>, T>::forward;
  /// Computes y.
  /// \throws std::invalid_argument if a shape or layout is wrong
  template <class E = Serial>
  void forward(const View<const T>& x, const View<T>& y, Saved& /*saved*/,
               E&& executor = {}) const {
    check_forward(kName, x, x.width(), y, x.width());
    detail::activate(kind, x, y, as_executor(executor));
  }

  /// Writes d_x, which may be d_y. \throws as `forward`
  template <class E = Serial>
  void backward(const View<const T>& x, Saved& /*saved*/, const View<const T>& d_y,
                const View<T>& d_x, E&& executor = {}) {
    check_activations(kName, "x", x, x.width());
    check_alike(kName, "d_y", d_y, x.width(), x);
    check_alike(kName, "d_x", d_x, x.width(), x);
    check_written(kName, "d_x", d_x, "x", x);
    check_in_place(kName, d_x, d_y);
    detail::activate_backward(kind, x, d_y, d_x, as_executor(executor));
  }

 private:
  static constexpr const char* kName = "ActivationFunction";
};

FOVEA_NAMESPACE_END
