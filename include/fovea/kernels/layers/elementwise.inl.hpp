// SPDX-License-Identifier: MIT
/// \file
/// Functions of single elements: GELU and the sigmoid, with their derivatives.

#if !defined(FOVEA_LEVEL)  // Read alone: what it stands on.
#pragma once
#include "fovea/kernels/layers/columns.inl.hpp"
#include "fovea/kernels/layers/elementwise.hpp"
#include "fovea/simd/math.inl.hpp"
#endif

/// to = f(x, d) for all elements, where d is 0 if it is not given.
template <class T, class F>
FOVEA_INLINE void map_elements(const ElementArgs<T>& p, const F& f) {
  for (Index i = 0; i < p.rows; ++i) {
    const T* const x = p.x + i * p.x_row;
    T* const to = p.to + i * p.to_row;
    const T* const d = p.d == nullptr ? x : p.d + i * p.d_row;
    for_each_vector<T>(p.width, [&](Index c, auto lanes) {
      lanes.write(to + c, f(lanes.read(x + c), lanes.read(d + c)));
    });
  }
}

/// The tanh form of GELU (Hendrycks and Gimpel 2016) is x sigmoid(2 u(x)) with u(x) = sqrt(2 / pi)
/// (x + 0.044715 x^3). kGeluSlope is 2 sqrt(2 / pi), and kGeluCubic is the factor of x^3.
inline constexpr double kGeluSlope = 2 * 0.79788456080286535588;
inline constexpr double kGeluCubic = 0.044715;

/// The factor of x in GELU: sigmoid(2 u(x)).
template <class T>
FOVEA_INLINE Vec<T> gelu_gate(Vec<T> x) {
  const Vec<T> inner = x * fma(set1(T(kGeluCubic)), x * x, set1(T(1)));
  return sigmoid(set1(T(kGeluSlope)) * inner);
}

/// GELU in its tanh form. That of -infinity is 0.
template <class T>
FOVEA_INLINE Vec<T> gelu_value(Vec<T> x) {
  return maximum(set1(T(-1e4)), x) * gelu_gate(x);
}

/// The derivative of GELU: s + x s (1 - s) 2 u'(x) with s = sigmoid(2 u(x)).
template <class T>
FOVEA_INLINE Vec<T> gelu_slope(Vec<T> x) {
  const Vec<T> s = gelu_gate(x);
  // For large x, s (1 - s) vanishes before x u'(x) overflows.
  const Vec<T> near = clamp(x, T(-1e3), T(1e3));
  const Vec<T> slope = fma(set1(T(3 * kGeluSlope * kGeluCubic)), near * near, set1(T(kGeluSlope)));
  return fma(near * s * (set1(T(1)) - s), slope, s);
}

/// GELU.
template <class T>
void gelu(const ElementArgs<T>& p) {
  map_elements(p, [](Vec<T> x, Vec<T>) { return gelu_value(x); });
}

/// The gradient of GELU.
template <class T>
void gelu_grad(const ElementArgs<T>& p) {
  map_elements(p, [](Vec<T> x, Vec<T> d) { return d * gelu_slope(x); });
}

/// factor / (1 + e^-x), which goes to 0 and to the factor at the ends. It is NaN for NaN.
template <class T>
void sigmoid_rows(const ElementArgs<T>& p) {
  map_elements(p, [&](Vec<T> x, Vec<T>) { return sigmoid(x) * set1(p.factor); });
}

/// The gradient of y = factor / (1 + e^-x), from y: d y (1 - y / factor).
template <class T>
void sigmoid_rows_grad(const ElementArgs<T>& p) {
  map_elements(p, [&](Vec<T> y, Vec<T> d) { return d * y * (set1(T(1)) - y / set1(p.factor)); });
}
