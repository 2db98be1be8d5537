// SPDX-License-Identifier: MIT
/// \file
/// Central differences of a number by every element of a tensor or view.
#pragma once

#include "support/tensor.hpp"

namespace fovea_test {

/// Calls f(n, (loss at x + step - loss at x - step) / (2 step)) for element n of x in logical
/// order. \param loss loss() is the number, double or wider
template <class X, class Loss, class F>
void for_each_difference(const X& x, double step, Loss&& loss, F&& f) {
  std::size_t n = 0;
  for_each_index(x.shape(), [&](Index b, Index h, Index i, Index c) {
    double& element = x(b, h, i, c);
    const double before = element;
    element = before + step;
    const auto above = loss();
    element = before - step;
    const auto below = loss();
    element = before;
    f(n++, static_cast<double>((above - below) / (2 * step)));
  });
}

}  // namespace fovea_test
