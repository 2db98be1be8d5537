// SPDX-License-Identifier: MIT
/// \file
/// Normal densities of many distances from the mean: the confidences of FSAT (eqs. 8 and 10).
/// Error: 3 + x^2 / (2 variance) ulp.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/indexed/normal_density.hpp"
#include "fovea/simd/math.inl.hpp"
#endif

template <class T>
FOVEA_INLINE Vec<T> normal_density_of(Vec<T> x, const NormalDensityArgs<T>& args) {
  // x * x is not computed first, since it may overflow where the density is near its peak.
  return set1(args.peak) * exp((x * set1(args.minus_half_precision)) * x);
}

template <class T>
void normal_density(const NormalDensityArgs<T>& args) noexcept {
  Index n = 0;
  for (; n + kLanes<T> <= args.count; n += kLanes<T>) {
    store(args.x + n, normal_density_of(load(args.x + n), args));
  }
  if (n < args.count) {
    const Index rest = args.count - n;
    store_first(args.x + n, normal_density_of(load_first(args.x + n, rest), args), rest);
  }
}
