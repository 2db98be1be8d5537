// SPDX-License-Identifier: MIT
/// \file
/// Gated units (Shazeer 2020): y = f(gate) up, and their gradients.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/layers/gelu.inl.hpp"
#include "fovea/kernels/layers/layers.hpp"
#endif

/// A gate's function.
template <class T>
struct GateParts {
  Vec<T> value;  ///< of the function
  Vec<T> slope;  ///< its derivative
};

/// x sigmoid(x). For large -x the product must not be infinity times 0, and for large x the slope's
/// s (1 - s) vanishes before its factor overflows.
struct SiluGate {
  template <class T>
  FOVEA_INLINE GateParts<T> operator()(Vec<T> x) const {
    const Vec<T> s = sigmoid(x);
    const Vec<T> clamped = clamp(x, T(-1e3), T(1e3));
    return {maximum(set1(T(-1e4)), x) * s, fma(clamped * s, set1(T(1)) - s, s)};
  }
};

/// GELU.
struct GeluGate {
  template <class T>
  FOVEA_INLINE GateParts<T> operator()(Vec<T> x) const {
    return {gelu_value(x), gelu_slope(x)};
  }
};

/// the tanh approximation of GELU.
struct GeluTanhGate {
  template <class T>
  FOVEA_INLINE GateParts<T> operator()(Vec<T> x) const {
    return {gelu_tanh_value(x), gelu_tanh_slope(x)};
  }
};

template <class T, class Gate>
FOVEA_INLINE void gated_rows(const GatedArgs<T>& p, const Gate& f) {
  for (Index i = 0; i < p.rows; ++i) {
    const T* const gate = p.gate + i * p.gate_row;
    const T* const up = p.up + i * p.up_row;
    T* const y = p.y + i * p.y_row;
    for_each_vector<T>(p.width, [&](Index c, auto lanes) {
      lanes.write(y + c, f(lanes.read(gate + c)).value * lanes.read(up + c));
    });
  }
}

template <class T, class Gate>
FOVEA_INLINE void gated_rows_grad(const GatedArgs<T>& p, const Gate& f) {
  for (Index i = 0; i < p.rows; ++i) {
    const T* const gate = p.gate + i * p.gate_row;
    const T* const up = p.up + i * p.up_row;
    const T* const d_y = p.d_y + i * p.d_y_row;
    T* const d_gate = p.d_gate + i * p.d_gate_row;
    T* const d_up = p.d_up + i * p.d_up_row;
    for_each_vector<T>(p.width, [&](Index c, auto lanes) {
      const GateParts<T> parts = f(lanes.read(gate + c));
      const Vec<T> d = lanes.read(d_y + c);
      const Vec<T> d_of_gate = d * lanes.read(up + c) * parts.slope;
      lanes.write(d_up + c, d * parts.value);
      lanes.write(d_gate + c, d_of_gate);
    });
  }
}

/// y = f(gate) up.
template <class T>
void gated(const GatedArgs<T>& p) {
  switch (p.kind) {
    case GateKind::silu:
      return gated_rows(p, SiluGate());
    case GateKind::gelu:
      return gated_rows(p, GeluGate());
    case GateKind::gelu_tanh:
      return gated_rows(p, GeluTanhGate());
  }
}

/// The gradients of gate and up.
template <class T>
void gated_grad(const GatedArgs<T>& p) {
  switch (p.kind) {
    case GateKind::silu:
      return gated_rows_grad(p, SiluGate());
    case GateKind::gelu:
      return gated_rows_grad(p, GeluGate());
    case GateKind::gelu_tanh:
      return gated_rows_grad(p, GeluTanhGate());
  }
}
