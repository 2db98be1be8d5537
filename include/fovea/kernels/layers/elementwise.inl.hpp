// SPDX-License-Identifier: MIT
/// \file
/// Element-wise functions: iteration over rows, and the sigmoid with its derivative.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/layers/columns.inl.hpp"
#include "fovea/kernels/layers/layers.hpp"
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

/// factor / (1 + e^-x), with limits 0 and factor. NaN for NaN.
template <class T>
void sigmoid_rows(const ElementArgs<T>& p) {
  map_elements(p, [&](const Vec<T>& x, const Vec<T>&) { return sigmoid(x) * set1(p.factor); });
}

/// The gradient of y = factor / (1 + e^-x), from y: d y (1 - y / factor).
template <class T>
void sigmoid_rows_grad(const ElementArgs<T>& p) {
  map_elements(p, [&](const Vec<T>& y, const Vec<T>& d) {
    return d * y * (set1(T(1)) - y / set1(p.factor));
  });
}
