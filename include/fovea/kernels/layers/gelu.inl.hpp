// SPDX-License-Identifier: MIT
/// \file
/// GELU (Hendrycks and Gimpel 2016), x Phi(x) with the normal distribution Phi, and its tanh
/// approximation, each with its derivative.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/layers/elementwise.inl.hpp"
#endif

/// The upper tail of the normal distribution, Q(t) = 1 - Phi(t) for t >= 0, as e^(-t^2 / 2) P(s) /
/// (t + k) with s = (t - k) / (t + k). P interpolates at Chebyshev points of [0, kMost], beyond
/// which Q is 0 in T.
template <class T>
struct NormalTail;

template <>
struct NormalTail<float> {
  static constexpr float kMost = 15;
  static constexpr float k = 2.5F;
  // Relative error 1.9e-8.
  static constexpr float kP[] = {
      0x1.69cee6p-1f,   -0x1.bc19c0p-2f, 0x1.0e4f3cp-3f,  0x1.2ea10ep-7f,   -0x1.0c7c70p-6f,
      -0x1.a359eap-10f, 0x1.4b32e4p-9f,  0x1.66a482p-11f, -0x1.49dee4p-12f, -0x1.4d72a0p-13f};
};

template <>
struct NormalTail<double> {
  static constexpr double kMost = 40;
  static constexpr double k = 4;
  // Relative error 3.8e-17.
  static constexpr double kP[] = {
      0x1.82b4bb8c94dcep-1,  -0x1.373e3a893c287p-1,  0x1.8c6dbf2cfc306p-2,   -0x1.7dff2bff6887ep-3,
      0x1.eec4cc3e44934p-5,  -0x1.ee276103553f4p-8,  -0x1.c81719c9c6173p-9,  0x1.ab825f813220cp-10,
      0x1.17a4a6244ab27p-13, -0x1.e4a416c8b21ebp-13, -0x1.001100120093ap-19, 0x1.26cfa080da321p-15,
      0x1.7fd3586e1dc36p-21, -0x1.8d37df4ae41f3p-18, -0x1.4f8a115316eb1p-21, 0x1.11d2c4c75e533p-20,
      0x1.1afa2d60d4048p-22, -0x1.4c0b11aec08afp-23, -0x1.47e88e32b035ep-24, 0x1.fdfb0b3351b0dp-27,
      0x1.e03ad77f5e906p-27, -0x1.6539b554097c0p-37, -0x1.129ec47f6a0a6p-30};
};

/// Phi(x), and e^(-x^2 / 2).
template <class T>
struct NormalParts {
  Vec<T> below;
  Vec<T> bell;
};

/// The distribution function of the normal distribution, with relative accuracy for small values.
template <class T>
FOVEA_INLINE NormalParts<T> normal_parts(Vec<T> x) {
  using C = NormalTail<T>;
  const IntVec<T> sign_mask = set1_int<T>(MathConstants<T>::kSignMask);
  const Vec<T> t = minimum(set1(C::kMost), from_bits<T>(bits(x) & ~sign_mask));
  const Vec<T> square = t * t;
  const Vec<T> lost = fma(t, t, zero<T>() - square);  // 0 where fma() rounds twice
  const Vec<T> rough = exp(square * set1(T(-0.5)));
  const Vec<T> bell = fma(rough * lost, set1(T(-0.5)), rough);
  const Vec<T> sum = t + set1(C::k);
  const Vec<T> tail = bell * polynomial((t - set1(C::k)) / sum, C::kP) / sum;
  return {select(x < zero<T>(), tail, set1(T(1)) - tail), bell};
}

/// x Phi(x); 0 at -infinity.
template <class T>
FOVEA_INLINE Vec<T> gelu_value(Vec<T> x) {
  return maximum(set1(T(-1e4)), x) * normal_parts(x).below;
}

/// Its derivative: Phi(x) + x e^(-x^2 / 2) / sqrt(2 pi).
template <class T>
FOVEA_INLINE Vec<T> gelu_slope(Vec<T> x) {
  const NormalParts<T> parts = normal_parts(x);
  const Vec<T> clamped = clamp(x, T(-1e4), T(1e4));  // the bell curve vanishes before x matters
  return fma(clamped * parts.bell, set1(T(0.39894228040143267794)), parts.below);
}

/// The tanh approximation of GELU is x sigmoid(2 u(x)) with u(x) = sqrt(2 / pi) (x + 0.044715 x^3).
/// kGeluSlope is 2 sqrt(2 / pi), and kGeluCubic is the factor of x^3.
inline constexpr double kGeluSlope = 2 * 0.79788456080286535588;
inline constexpr double kGeluCubic = 0.044715;

/// The factor of x in GELU: sigmoid(2 u(x)).
template <class T>
FOVEA_INLINE Vec<T> gelu_gate(Vec<T> x) {
  const Vec<T> inner = x * fma(set1(T(kGeluCubic)), x * x, set1(T(1)));
  return sigmoid(set1(T(kGeluSlope)) * inner);
}

/// The tanh approximation of GELU; 0 at -infinity.
template <class T>
FOVEA_INLINE Vec<T> gelu_tanh_value(Vec<T> x) {
  return maximum(set1(T(-1e4)), x) * gelu_gate(x);
}

/// Its derivative: s + x s (1 - s) 2 u'(x) with s = sigmoid(2 u(x)).
template <class T>
FOVEA_INLINE Vec<T> gelu_tanh_slope(Vec<T> x) {
  const Vec<T> s = gelu_gate(x);
  // For large x, s (1 - s) vanishes before x u'(x) overflows.
  const Vec<T> clamped = clamp(x, T(-1e3), T(1e3));
  const Vec<T> slope =
      fma(set1(T(3 * kGeluSlope * kGeluCubic)), clamped * clamped, set1(T(kGeluSlope)));
  return fma(clamped * s * (set1(T(1)) - s), slope, s);
}

/// GELU.
template <class T>
void gelu(const ElementArgs<T>& p) {
  map_elements(p, [](const Vec<T>& x, const Vec<T>&) { return gelu_value(x); });
}

/// The gradient of GELU.
template <class T>
void gelu_grad(const ElementArgs<T>& p) {
  map_elements(p, [](const Vec<T>& x, const Vec<T>& d) { return d * gelu_slope(x); });
}

/// The tanh approximation of GELU.
template <class T>
void gelu_tanh(const ElementArgs<T>& p) {
  map_elements(p, [](const Vec<T>& x, const Vec<T>&) { return gelu_tanh_value(x); });
}

/// The gradient of the tanh approximation.
template <class T>
void gelu_tanh_grad(const ElementArgs<T>& p) {
  map_elements(p, [](const Vec<T>& x, const Vec<T>& d) { return d * gelu_tanh_slope(x); });
}
