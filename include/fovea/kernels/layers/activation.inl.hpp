// SPDX-License-Identifier: MIT
/// \file
/// ReLU, SiLU and the hyperbolic tangent, each with the gradient of its input.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/layers/gated.inl.hpp"
#endif

/// max(x, 0).
template <class T>
void relu_rows(const ElementArgs<T>& p) {
  map_elements(p,
               [](const Vec<T>& x, const Vec<T>&) { return select(x < zero<T>(), zero<T>(), x); });
}

/// The gradient of max(x, 0), with slope 0 at 0.
template <class T>
void relu_rows_grad(const ElementArgs<T>& p) {
  map_elements(
      p, [](const Vec<T>& x, const Vec<T>& d) { return select(zero<T>() < x, d, zero<T>()); });
}

/// x sigmoid(x); 0 at -infinity.
template <class T>
void silu_rows(const ElementArgs<T>& p) {
  map_elements(p, [](const Vec<T>& x, const Vec<T>&) { return SiluGate()(x).value; });
}

/// The gradient of x sigmoid(x).
template <class T>
void silu_rows_grad(const ElementArgs<T>& p) {
  map_elements(p, [](const Vec<T>& x, const Vec<T>& d) { return d * SiluGate()(x).slope; });
}

/// tanh(x).
template <class T>
void tanh_rows(const ElementArgs<T>& p) {
  map_elements(p, [](const Vec<T>& x, const Vec<T>&) { return tanh(x); });
}

/// The gradient of tanh(x), whose slope is 4 s (1 - s) with s = sigmoid(-2 |x|): small slopes keep
/// their relative accuracy.
template <class T>
void tanh_rows_grad(const ElementArgs<T>& p) {
  const IntVec<T> sign_mask = set1_int<T>(MathConstants<T>::kSignMask);
  map_elements(p, [&](const Vec<T>& x, const Vec<T>& d) {
    const Vec<T> negative = from_bits<T>(bits(x) | sign_mask);
    const Vec<T> s = sigmoid(negative + negative);
    return d * (set1(T(4)) * s * (set1(T(1)) - s));
  });
}
