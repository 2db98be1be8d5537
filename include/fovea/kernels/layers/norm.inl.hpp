// SPDX-License-Identifier: MIT
/// \file
/// Layer normalisation and its gradients.

#if !defined(FOVEA_LEVEL)  // Read alone: what it stands on.
#pragma once
#include "fovea/kernels/layers/columns.inl.hpp"
#include "fovea/kernels/layers/norm.hpp"
#include "fovea/simd/register_block.inl.hpp"
#endif

/// y = (x - mean) / deviation * scale + shift, and the moments of each row.
template <class T>
void normalise(const NormArgs<T>& p) {
  const Vec<T> share = set1(T(1)) / set1(static_cast<T>(p.width));
  for (Index i = 0; i < p.rows; ++i) {
    const T* const x = p.x + i * p.x_row;
    T* const y = p.y + i * p.y_row;
    T sum[1];
    row_sums<1>(p.width, sum, [&](Index c, auto lanes, auto add) { add(0, lanes.read(x + c)); });
    const Vec<T> mean = set1(sum[0] / static_cast<T>(p.width));
    row_sums<1>(p.width, sum, [&](Index c, auto lanes, auto add) {
      const Vec<T> centred = lanes.only(lanes.read(x + c) - mean);
      add(0, centred * centred);
    });
    const Vec<T> variance = fma(set1(sum[0]), share, set1(p.epsilon));
    const Vec<T> inverse = set1(T(1)) / square_root(variance);
    p.moments[2 * i] = mean.raw[0];
    p.moments[2 * i + 1] = inverse.raw[0];
    for_each_vector<T>(p.width, [&](Index c, auto lanes) {
      const Vec<T> normal = (lanes.read(x + c) - mean) * inverse;
      lanes.write(y + c, fma(normal, lanes.read(p.scale + c), lanes.read(p.shift + c)));
    });
  }
}

/// d_x = (g - mean(g) - xhat mean(g xhat)) / deviation, with g = d_y scale and
/// xhat = (x - mean) / deviation.
template <class T>
void norm_grad(const NormArgs<T>& p) {
  for (Index i = 0; i < p.rows; ++i) {
    const T* const x = p.x + i * p.x_row;
    const T* const d_y = p.d_y + i * p.d_y_row;
    T* const d_x = p.d_x + i * p.d_x_row;
    const Vec<T> mean = set1(p.moments[2 * i]);
    const Vec<T> inverse = set1(p.moments[2 * i + 1]);
    T sums[2];
    row_sums<2>(p.width, sums, [&](Index c, auto lanes, auto add) {
      const Vec<T> g = lanes.read(d_y + c) * lanes.read(p.scale + c);
      add(0, g);
      add(1, g * (lanes.only(lanes.read(x + c) - mean) * inverse));
    });
    const Vec<T> of_g = set1(sums[0] / static_cast<T>(p.width));
    const Vec<T> minus_of_g_x = set1(-sums[1] / static_cast<T>(p.width));
    for_each_vector<T>(p.width, [&](Index c, auto lanes) {
      const Vec<T> normal = (lanes.read(x + c) - mean) * inverse;
      const Vec<T> g = lanes.read(d_y + c);
      const Vec<T> centred = fma(g, lanes.read(p.scale + c), zero<T>() - of_g);
      lanes.write(d_x + c, fma(normal, minus_of_g_x, centred) * inverse);
    });
  }
}

/// The gradients of the parameters of some vectors of columns.
template <class T>
struct NormParameterColumns {
  const NormArgs<T>& p;

  template <int V>
  FOVEA_INLINE void run(Index vector) const {
    add<V>(vector * kLanes<T>, WholeVector<T>{});
  }
  /// \param lanes those of each vector
  template <int V, class Lanes>
  FOVEA_INLINE void add(Index column, const Lanes& lanes) const {
    Vec<T> scale[V];
    Vec<T> shift[V];
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) {
      scale[v] = lanes.read(p.d_scale + column + v * kLanes<T>);
      shift[v] = lanes.read(p.d_shift + column + v * kLanes<T>);
    }
    for (Index i = 0; i < p.rows; ++i) {
      const T* const x = p.x + i * p.x_row + column;
      const T* const d_y = p.d_y + i * p.d_y_row + column;
      const Vec<T> mean = set1(p.moments[2 * i]);
      const Vec<T> inverse = set1(p.moments[2 * i + 1]);
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) {
        const Vec<T> d = lanes.read(d_y + v * kLanes<T>);
        scale[v] = fma(d, (lanes.read(x + v * kLanes<T>) - mean) * inverse, scale[v]);
        shift[v] = shift[v] + d;
      }
    }
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) {
      lanes.write(p.d_scale + column + v * kLanes<T>, scale[v]);
      lanes.write(p.d_shift + column + v * kLanes<T>, shift[v]);
    }
  }
};

/// Adds to the gradients of scale and shift the sums over all rows, in order.
template <class T>
void norm_parameters(const NormArgs<T>& p) {
  const NormParameterColumns<T> columns{p};
  const Index vectors = p.width / kLanes<T>;
  for_row_blocks<4>(0, vectors, columns);
  const Index done = vectors * kLanes<T>;
  if (done < p.width) columns.template add<1>(done, PartOfVector<T>{p.width - done});
}
