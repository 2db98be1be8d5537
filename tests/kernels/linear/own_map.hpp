// SPDX-License-Identifier: MIT
/// \file
/// A feature map of one's own for tests of the kernels of linear attention: x^2.
#pragma once

#include "fovea/kernels/linear/feature_map.hpp"

namespace fovea_test {

template <class T>
void square(const T* x, T* y, fovea::Index n) noexcept {
  for (fovea::Index i = 0; i < n; ++i) y[i] = x[i] * x[i];
}
/// Its derivative.
template <class T>
void twice(const T* x, T* y, fovea::Index n) noexcept {
  for (fovea::Index i = 0; i < n; ++i) y[i] = 2 * x[i];
}

}  // namespace fovea_test
