// SPDX-License-Identifier: MIT
/// \file
/// A depthwise convolution and the gradient of its weights.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/layers/columns.inl.hpp"
#include "fovea/kernels/layers/layers.hpp"
#include "fovea/simd/integers.inl.hpp"
#include "fovea/simd/register_block.inl.hpp"
#endif

/// Rows of one vector of channels.
template <class T, class Lanes>
struct ConvolvedRows {
  const ConvolutionArgs<T>& p;
  Index column;
  Lanes lanes;

  template <int R>
  FOVEA_INLINE void run(Index i) const {
    const Index half = p.taps / 2;
    const bool is_inside = i >= half && i + R + half <= p.length;
    Vec<T> sum[R];
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      sum[r] = p.add ? lanes.read(p.to + (i + r) * p.to_row + column) : zero<T>();
    }
    for (Index t = 0; t < p.taps; ++t) {
      const Index tap = p.reversed ? p.taps - 1 - t : t;
      const Vec<T> w = lanes.read(p.weights + tap * p.weights_row + column);
      const Index first = i + t - half;
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) {
        const Index from = first + r;
        if (!is_inside && (from < 0 || from >= p.length || i + r >= p.length)) continue;
        sum[r] = fma(w, lanes.read(p.x + from * p.x_row + column), sum[r]);
      }
    }
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) lanes.write(p.to + (i + r) * p.to_row + column, sum[r]);
  }
};

/// to[i] = sum_t w[t] x[i + t - taps / 2] for rows [begin, end), and 0 beyond the sequence.
template <class T>
void convolve(const ConvolutionArgs<T>& p) {
  for_each_vector<T>(p.width, [&](Index c, auto lanes) {
    for_row_blocks<4>(p.begin, p.end, ConvolvedRows<T, decltype(lanes)>{p, c, lanes});
  });
}

/// The gradients of R taps, for one vector of channels.
template <class T, class Lanes>
struct ConvolvedTaps {
  const ConvolutionArgs<T>& p;
  Index column;
  Lanes lanes;

  template <int R>
  FOVEA_INLINE void run(Index tap) const {
    T* const to = p.d_weights + tap * p.d_weights_row + column;
    Vec<T> sum[R];
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) sum[r] = lanes.read(to + r * p.d_weights_row);
    const Index shift = tap - p.taps / 2;
    const Index end = smaller(p.end, p.length);
    for (Index i = p.begin; i < end; ++i) {
      const Vec<T> d = lanes.read(p.d + i * p.d_row + column);
      const Index first = i + shift;
      const bool is_inside = first >= 0 && first + R <= p.length;
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) {
        const Index from = first + r;
        if (!is_inside && (from < 0 || from >= p.length)) continue;
        sum[r] = fma(d, lanes.read(p.x + from * p.x_row + column), sum[r]);
      }
    }
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) lanes.write(to + r * p.d_weights_row, sum[r]);
  }
};

/// d_weights[t] += sum_i d[i] x[i + t - taps / 2] for rows [begin, end) of the sequence, in their
/// order.
template <class T>
void convolution_weights(const ConvolutionArgs<T>& p) {
  for_each_vector<T>(p.width, [&](Index c, auto lanes) {
    for_row_blocks<5>(0, p.taps, ConvolvedTaps<T, decltype(lanes)>{p, c, lanes});
  });
}
