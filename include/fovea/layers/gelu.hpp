// SPDX-License-Identifier: MIT
/// \file
/// GELU (Hendrycks and Gimpel 2016).
#pragma once

#include "fovea/layers/activation_function.hpp"

FOVEA_NAMESPACE_BEGIN

/// The form of GELU.
enum class GeluForm {
  erf,   ///< x Phi(x), where Phi is the distribution function of the normal distribution
  tanh,  ///< x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), within 5e-4 of erf
};

/// The ActivationKind of a form of GELU.
constexpr ActivationKind activation_of(GeluForm form) {
  return form == GeluForm::erf ? ActivationKind::gelu : ActivationKind::gelu_tanh;
}

/// GELU of activations [B, 1, L, C]. It has no parameters and costs one exponential per element.
/// Small values keep their relative accuracy.
template <class T>
class Gelu : public LayerCalls<Gelu<T>, T> {
 public:
  GeluForm form = GeluForm::erf;  ///< The function.

  /// x Phi(x).
  Gelu() = default;
  /// Uses the given function.
  explicit Gelu(GeluForm chosen) : form(chosen) {}

  /// Empty: backward reads x again.
  struct Saved {};

  using LayerCalls<Gelu<T>, T>::forward;
  /// Computes y.
  /// \throws std::invalid_argument if a shape or layout is wrong
  template <class E = Serial>
  void forward(const View<const T>& x, const View<T>& y, Saved& /*saved*/,
               E&& executor = {}) const {
    check_forward("Gelu", x, x.width(), y, x.width());
    detail::activate(activation_of(form), x, y, as_executor(executor));
  }

  /// Writes d_x, which may be d_y. \throws as `forward`
  template <class E = Serial>
  void backward(const View<const T>& x, Saved& /*saved*/, const View<const T>& d_y,
                const View<T>& d_x, E&& executor = {}) {
    check_activations("Gelu", "x", x, x.width());
    check_alike("Gelu", "d_y", d_y, x.width(), x);
    check_alike("Gelu", "d_x", d_x, x.width(), x);
    check_written("Gelu", "d_x", d_x, "x", x);
    check_in_place("Gelu", d_x, d_y);
    detail::activate_backward(activation_of(form), x, d_y, d_x, as_executor(executor));
  }
};

FOVEA_NAMESPACE_END
