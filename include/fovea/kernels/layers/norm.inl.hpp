// SPDX-License-Identifier: MIT
/// \file
/// Layer and RMS normalisation, and their gradients.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/layers/columns.inl.hpp"
#include "fovea/kernels/layers/layers.hpp"
#include "fovea/simd/register_block.inl.hpp"
#endif

/// The saved moments of row i.
template <class T, bool kCentred>
struct RowMoments {
  explicit FOVEA_INLINE RowMoments(const NormArgs<T>& p, Index i)
      : mean(set1(kCentred ? p.moments[2 * i] : T(0))),
        inverse(set1(p.moments[norm_moments(kCentred) * (i + 1) - 1])) {}

  Vec<T> mean;
  Vec<T> inverse;
};

/// x - mean, or x if rows are not centred.
template <bool kCentred, class T>
FOVEA_INLINE Vec<T> centre(const Vec<T>& x, const Vec<T>& mean) {
  if constexpr (kCentred) {
    return x - mean;
  } else {
    return x;
  }
}

/// y = (x - mean) / deviation * scale + shift, or y = x / deviation * scale, and the moments of
/// each row.
template <class T, bool kCentred>
FOVEA_INLINE void normalise_rows(const NormArgs<T>& p) {
  const Vec<T> share = set1(T(1)) / set1(static_cast<T>(p.width));
  for (Index i = 0; i < p.rows; ++i) {
    const T* const x = p.x + i * p.x_row;
    T* const y = p.y + i * p.y_row;
    T* const moments = p.moments + norm_moments(kCentred) * i;
    T sum[1];
    Vec<T> mean = zero<T>();
    if constexpr (kCentred) {
      row_sums<1>(p.width, sum, [&](Index c, auto lanes, auto add) { add(0, lanes.read(x + c)); });
      mean = set1(sum[0] / static_cast<T>(p.width));
      moments[0] = mean.raw[0];
    }
    row_sums<1>(p.width, sum, [&](Index c, auto lanes, auto add) {
      const Vec<T> centred = lanes.only(centre<kCentred>(lanes.read(x + c), mean));
      add(0, centred * centred);
    });
    const Vec<T> variance = fma(set1(sum[0]), share, set1(p.epsilon));
    const Vec<T> inverse = set1(T(1)) / square_root(variance);
    moments[norm_moments(kCentred) - 1] = inverse.raw[0];
    for_each_vector<T>(p.width, [&](Index c, auto lanes) {
      const Vec<T> normal = centre<kCentred>(lanes.read(x + c), mean) * inverse;
      const Vec<T> scale = lanes.read(p.scale + c);
      if constexpr (kCentred) {
        lanes.write(y + c, fma(normal, scale, lanes.read(p.shift + c)));
      } else {
        lanes.write(y + c, normal * scale);
      }
    });
  }
}

/// See normalise_rows.
template <class T>
void normalise(const NormArgs<T>& p) {
  p.is_centred ? normalise_rows<T, true>(p) : normalise_rows<T, false>(p);
}

/// d_x = (g - mean(g) - xhat mean(g xhat)) / deviation, with g = d_y scale and xhat = (x - mean) /
/// deviation; without centring, both means are absent.
template <class T, bool kCentred>
FOVEA_INLINE void norm_grad_rows(const NormArgs<T>& p) {
  constexpr int kSums = kCentred ? 2 : 1;  // g xhat last
  for (Index i = 0; i < p.rows; ++i) {
    const T* const x = p.x + i * p.x_row;
    const T* const d_y = p.d_y + i * p.d_y_row;
    T* const d_x = p.d_x + i * p.d_x_row;
    const RowMoments<T, kCentred> row(p, i);
    T sums[kSums];
    row_sums<kSums>(p.width, sums, [&](Index c, auto lanes, auto add) {
      const Vec<T> g = lanes.read(d_y + c) * lanes.read(p.scale + c);
      if constexpr (kCentred) add(0, g);
      add(kSums - 1, g * (lanes.only(centre<kCentred>(lanes.read(x + c), row.mean)) * row.inverse));
    });
    const Vec<T> of_g = set1(kCentred ? sums[0] / static_cast<T>(p.width) : T(0));
    const Vec<T> minus_of_g_x = set1(-sums[kSums - 1] / static_cast<T>(p.width));
    for_each_vector<T>(p.width, [&](Index c, auto lanes) {
      const Vec<T> normal = centre<kCentred>(lanes.read(x + c), row.mean) * row.inverse;
      const Vec<T> g = lanes.read(d_y + c);
      const Vec<T> centred = fma(g, lanes.read(p.scale + c), zero<T>() - of_g);
      lanes.write(d_x + c, fma(normal, minus_of_g_x, centred) * row.inverse);
    });
  }
}

/// See norm_grad_rows.
template <class T>
void norm_grad(const NormArgs<T>& p) {
  p.is_centred ? norm_grad_rows<T, true>(p) : norm_grad_rows<T, false>(p);
}

/// The gradients of the parameters of some vectors of columns.
template <class T, bool kCentred>
struct NormParameterColumns {
  const NormArgs<T>& p;

  template <int V>
  FOVEA_INLINE void run(Index vector) const {
    add<V>(vector * kLanes<T>, FullVector<T>{});
  }
  /// \param lanes of each vector
  template <int V, class Lanes>
  FOVEA_INLINE void add(Index column, const Lanes& lanes) const {
    Vec<T> scale[V];
    Vec<T> shift[V];
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) {
      scale[v] = lanes.read(p.d_scale + column + v * kLanes<T>);
      if constexpr (kCentred) shift[v] = lanes.read(p.d_shift + column + v * kLanes<T>);
    }
    for (Index i = 0; i < p.rows; ++i) {
      const T* const x = p.x + i * p.x_row + column;
      const T* const d_y = p.d_y + i * p.d_y_row + column;
      const RowMoments<T, kCentred> row(p, i);
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) {
        const Vec<T> d = lanes.read(d_y + v * kLanes<T>);
        const Vec<T> normal =
            centre<kCentred>(lanes.read(x + v * kLanes<T>), row.mean) * row.inverse;
        scale[v] = fma(d, normal, scale[v]);
        if constexpr (kCentred) shift[v] = shift[v] + d;
      }
    }
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) {
      lanes.write(p.d_scale + column + v * kLanes<T>, scale[v]);
      if constexpr (kCentred) lanes.write(p.d_shift + column + v * kLanes<T>, shift[v]);
    }
  }

  FOVEA_INLINE void run_all() const {
    const Index vectors = p.width / kLanes<T>;
    for_row_blocks<4>(0, vectors, *this);
    const Index done = vectors * kLanes<T>;
    if (done < p.width) add<1>(done, PartialVector<T>{p.width - done});
  }
};

/// Adds the sums over all rows, in order, to the gradients of scale and, if centred, of shift.
template <class T>
void norm_parameters(const NormArgs<T>& p) {
  p.is_centred ? NormParameterColumns<T, true>{p}.run_all()
               : NormParameterColumns<T, false>{p}.run_all();
}
