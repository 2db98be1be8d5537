// SPDX-License-Identifier: MIT
/// \file
/// The outer step of long transforms. R transforms of length M, each computed by FFTW within a
/// cache, combine to one of length R M. This is the first step of a forward transform and the last
/// step of an inverse one.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/spectral/complex.inl.hpp"
#include "fovea/kernels/spectral/cross.hpp"
#endif

/// e^{-2 pi i m r / (R M)}, in lanes from m on.
/// \param block number of the block of kRootBlock elements that m is in
/// \param lane place of m in that block
template <class V, class T>
FOVEA_INLINE ComplexVec<V> root_at(const OuterRoots<T>& roots, Index block, Index lane, int r) {
  const T* const base = roots.blocks + 2 * (block * roots.rows + r);
  const T* const lanes = roots.lanes + 2 * kRootBlock * r + lane;
  return ComplexVec<V>{set1(base[0]), set1(base[1])} *
         ComplexVec<V>{load(lanes), load(lanes + kRootBlock)};
}

/// Computes row r of z at m: the sum over q of x[M q + m] e^{-2 pi i q r / R}
/// e^{-2 pi i m r / (R M)}. The transform of this row, of length M, gives the elements R k + r of
/// the transform of x.
template <int R, bool Half, class T>
FOVEA_INLINE void sharded_rows(const OuterStepArgs<T>& a) {
  using V = Vec<T>;
  constexpr int inputs = Half ? R / 2 : R;
  for (Index m = 0; m < a.columns; m += kLanes<T>) {
    ComplexVec<V> x[R], rows[R];
    FOVEA_UNROLL
    for (int q = 0; q < inputs; ++q) x[q] = load_complex<V, false>(a.x + 2 * (q * a.columns + m));
    transform<R, Half, T>(x, rows);
    store_complex<false>(a.z + 2 * m, rows[0]);
    const Index block = m / kRootBlock;
    FOVEA_UNROLL
    for (int r = 1; r < R; ++r) {
      const ComplexVec<V> root = root_at<V>(a.roots, block, m % kRootBlock, r);
      store_complex<false>(a.z + 2 * (r * a.columns + m), rows[r] * root);
    }
  }
}

/// Writes the only row if R is 1: x and, if x has only its first half, as many zeros.
template <class T>
FOVEA_INLINE void sharded_row(const OuterStepArgs<T>& a) {
  const Index count = a.half ? a.columns : 2 * a.columns;
  Index i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) store(a.z + i, load(a.x + i));
  for (; i < count; ++i) a.z[i] = a.x[i];
  if (!a.half) return;
  for (; i + kLanes<T> <= 2 * count; i += kLanes<T>) store(a.z + i, zero<T>());
  for (; i < 2 * count; ++i) a.z[i] = 0;
}

template <int R, class T>
FOVEA_INLINE void sharded_half_or_full(const OuterStepArgs<T>& a) {
  if (a.half) return sharded_rows<R, true>(a);
  sharded_rows<R, false>(a);
}

template <class T>
FOVEA_NOINLINE void outer_step(const OuterStepArgs<T>& a) noexcept {
  switch (a.roots.rows) {
    case 2:
      return sharded_half_or_full<2>(a);
    case 4:
      return sharded_half_or_full<4>(a);
    case 8:
      return sharded_half_or_full<8>(a);
    case 16:
      return sharded_half_or_full<16>(a);
    default:
      return sharded_row(a);
  }
}

/// out = y - a b, in the lanes from i on.
template <class T>
FOVEA_INLINE void finish_lanes(const FinishArgs<T>& f, Index i, Vec<T> y) {
  store(f.out + i, fma(negative(load(f.a + i)), load(f.b + i), y));
}

/// The inverse of sharded_rows, for inversely transformed rows. It uses that an inverse transform
/// is a forward one of numbers with real and imaginary parts swapped.
template <int R, bool Half, class T>
FOVEA_INLINE void finish_rows(const FinishArgs<T>& f) {
  using V = Vec<T>;
  for (Index m = 0; m < f.columns; m += kLanes<T>) {
    ComplexVec<V> rows[R], y[R];
    rows[0] = swapped(load_complex<V, false>(f.z + 2 * m));
    const Index block = m / kRootBlock;
    FOVEA_UNROLL
    for (int r = 1; r < R; ++r) {
      const ComplexVec<V> root = root_at<V>(f.roots, block, m % kRootBlock, r);
      const ComplexVec<V> z = load_complex<V, false>(f.z + 2 * (r * f.stride + m));
      rows[r] = swapped(conjugate(root) * z);
    }
    transform<R, false, T>(rows, y);
    FOVEA_UNROLL
    for (int q = 0; q < (Half ? R / 2 : R); ++q) {
      const Index i = 2 * (q * f.columns + m);
      finish_lanes(f, i, interleave<false>(y[q].im, y[q].re));
      finish_lanes(f, i + kLanes<T>, interleave<true>(y[q].im, y[q].re));
    }
  }
}

template <int R, class T>
FOVEA_INLINE void finish_half_or_full(const FinishArgs<T>& f) {
  if (f.half) return finish_rows<R, true>(f);
  finish_rows<R, false>(f);
}

template <class T>
FOVEA_NOINLINE void finish(const FinishArgs<T>& f) noexcept {
  switch (f.roots.rows) {
    case 2:
      return finish_half_or_full<2>(f);
    case 4:
      return finish_half_or_full<4>(f);
    case 8:
      return finish_half_or_full<8>(f);
    case 16:
      return finish_half_or_full<16>(f);
    default:
      break;
  }
  const Index count = f.half ? f.columns : 2 * f.columns;
  for (Index i = 0; i < count; i += kLanes<T>) finish_lanes(f, i, load(f.z + i));
}
