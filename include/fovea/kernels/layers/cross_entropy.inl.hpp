// SPDX-License-Identifier: MIT
/// \file
/// Softmax cross entropy and its gradient, computed in double.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/layers/columns.inl.hpp"
#include "fovea/kernels/layers/layers.hpp"
#include "fovea/simd/math.inl.hpp"
#endif

/// The largest element of a row, as by std::max: NaN is ignored unless it is first.
template <class T>
FOVEA_INLINE double largest_of(const T* x, Index count) {
  T most = x[0];
  for (Index c = 1; c < count; ++c) most = most < x[c] ? x[c] : most;
  return static_cast<double>(most);
}

/// log(sum exp(x)) - x[target], and d = share (softmax(x) - one at the target) if requested.
template <class T>
void cross_entropy(const CrossEntropyArgs<T>& p) {
  for (Index i = 0; i < p.rows; ++i) {
    const T* const x = p.x + i * p.x_row;
    T* const d = p.d == nullptr ? nullptr : p.d + i * p.d_row;
    const Index target = p.targets[static_cast<std::size_t>(i)];
    p.losses[i] = 0;
    if (target < 0) {
      if (d == nullptr) continue;
      for_each_vector<T>(p.classes, [&](Index c, auto lanes) { lanes.write(d + c, zero<T>()); });
      continue;
    }
    const Vec<double> most = set1(largest_of(x, p.classes));
    double sum[1];
    row_sums<1>(p.classes, sum, [&](Index c, auto lanes, auto add) {
      add(0, lanes.only(exp(lanes.wide(x + c) - most)));
    });
    if (d != nullptr) {
      const Vec<double> factor = set1(p.share) / set1(sum[0]);
      for_each_vector<double>(p.classes, [&](Index c, auto lanes) {
        lanes.write_narrow(d + c, exp(lanes.wide(x + c) - most) * factor);
      });
      const double weight = exp(set1(static_cast<double>(x[target])) - most).raw[0] / sum[0];
      d[target] = static_cast<T>(p.share * (weight - 1));
    }
    p.losses[i] = log(set1(sum[0])).raw[0] + most.raw[0] - static_cast<double>(x[target]);
  }
}
