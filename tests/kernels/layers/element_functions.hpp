// SPDX-License-Identifier: MIT
/// \file
/// Functions of single elements, called with a few of them.
#pragma once

#include <vector>

#include "fovea/kernels/layers/table.hpp"
#include "kernels/layers/drawn_rows.hpp"

namespace fovea_test {

template <class T>
using Function = void (fovea::LayerKernels<T>::*)(const fovea::ElementArgs<T>&) const noexcept;

/// A function of x, and of d if that is given, with a factor.
template <class T>
std::vector<T> of(Function<T> function, const std::vector<T>& x, const std::vector<T>& d = {},
                  T factor = 1) {
  std::vector<T> to(x.size());
  const auto width = static_cast<Index>(x.size());
  (fovea::LayerKernels<T>().*function)({.x = x.data(),
                                        .x_row = width,
                                        .d = d.empty() ? nullptr : d.data(),
                                        .d_row = width,
                                        .to = to.data(),
                                        .to_row = width,
                                        .rows = 1,
                                        .width = width,
                                        .factor = factor});
  return to;
}

/// From `low` on, in steps, below `high`.
template <class T>
std::vector<T> range(double low, double high, double step) {
  std::vector<T> x;
  const auto count = static_cast<Index>((high - low) / step);
  for (Index i = 0; i < count; ++i)
    x.push_back(static_cast<T>(low + static_cast<double>(i) * step));
  return x;
}

}  // namespace fovea_test
