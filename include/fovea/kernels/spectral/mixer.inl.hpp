// SPDX-License-Identifier: MIT
/// \file
/// The steps around the transforms of the Fourier mixer. They add, subtract and halve, with the
/// same rounding at every register width, and move numbers by transposing register blocks.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/spectral/complex.inl.hpp"
#include "fovea/kernels/spectral/mixer.hpp"
#endif

template <class T>
FOVEA_NOINLINE void join_rows(const JoinRowsArgs<T>& a) noexcept {
  Index d = 0;
  if (a.column == 1) {
    for (; d + kLanes<T> <= a.width; d += kLanes<T>) {
      store_complex<false>(a.to + 2 * d, ComplexVec<Vec<T>>{load(a.first + d), load(a.second + d)});
    }
  }
  for (; d < a.width; ++d) {
    a.to[2 * d] = a.first[d * a.column];
    a.to[2 * d + 1] = a.second[d * a.column];
  }
}

template <class T>
FOVEA_NOINLINE void fold_row(const FoldRowArgs<T>& a) noexcept {
  Index c = 0;
  for (; c + kLanes<T> <= a.width; c += kLanes<T>) {
    const ComplexVec<Vec<T>> z = load_complex<Vec<T>, false>(a.z + 2 * c);
    store(a.sums + c, (z.re + z.im) * set1<T>(T(0.5)));
  }
  for (; c < a.width; ++c) a.sums[c] = (a.z[2 * c] + a.z[2 * c + 1]) * T(0.5);
  a.sums[a.width] = a.sums[0];
}

/// Moves lanes x lanes pairs of sums, from `sums` on, into sequences. \tparam Mirror whether the
/// sums are of columns from 2j on, written to N - n; otherwise descending from D - 2j.
/// \param sums, to the place of the first pair of the first row
template <bool Mirror, class T>
FOVEA_INLINE void unpack_tile(const UnpackSumsArgs<T>& a, const T* sums, T* to) {
  constexpr int w = kLanes<T>;
  Vec<T> first[w], second[w];
  FOVEA_UNROLL
  for (int r = 0; r < w; ++r) {
    const ComplexVec<Vec<T>> pairs = load_complex<Vec<T>, !Mirror>(sums + r * a.row);
    first[r] = Mirror ? pairs.re : pairs.im;
    second[r] = Mirror ? pairs.im : pairs.re;
  }
  transpose(first);
  transpose(second);
  FOVEA_UNROLL
  for (int j = 0; j < w; ++j) {
    store_complex<Mirror>(to + j * a.stride, ComplexVec<Vec<T>>{first[j], second[j]});
  }
}

/// If a row is its own mirror image, N - n is written last, at every level.
template <class T>
FOVEA_NOINLINE void unpack_sums(const UnpackSumsArgs<T>& a) noexcept {
  constexpr Index w = kLanes<T>;
  for (Index r = 0; r < a.count;) {
    const bool whole = r + w <= a.count;
    const T* const sums = a.sums + r * a.row;
    T* const here = a.sequences + 2 * (a.first + r);
    T* const mirror = a.sequences + 2 * (a.rows - a.first - r);
    Index j = 0;
    for (; whole && j + w <= a.pairs && 2 * (j + w) <= a.width + 1; j += w) {
      unpack_tile<false>(a, sums + a.width - 1 - 2 * j, here + j * a.stride);
      unpack_tile<true>(a, sums + 2 * j, mirror + j * a.stride);
    }
    const Index end = whole ? w : 1;
    for (; j < a.pairs; ++j) {
      for (Index i = 0; i < end; ++i) {
        const T* const from = sums + i * a.row;
        T* const to = here + j * a.stride + 2 * i;
        T* const back = mirror + j * a.stride - 2 * i;
        to[0] = from[a.width - 2 * j];
        to[1] = from[a.width - 2 * j - 1];
        back[0] = from[2 * j];
        back[1] = from[2 * j + 1];
      }
    }
    r += end;
  }
}

/// The four columns of a pair of columns, in the order 2j, 2j + 1, D - 2j, D - 2j - 1.
template <class V>
struct FourColumns {
  V at[4];
};

template <class V>
FOVEA_INLINE FourColumns<V> four_columns(ComplexVec<V> z, ComplexVec<V> mirrored, V half) {
  const V h = z.re + z.im;
  const V g = z.re - z.im;
  const V h_mirror = mirrored.re + mirrored.im;
  const V g_mirror = mirrored.re - mirrored.im;
  return {
      {(h + g_mirror) * half, (h_mirror - g) * half, (g + h_mirror) * half, (h - g_mirror) * half}};
}

/// A tile of rows of the result: some ascending columns, of which [begin, end) exist.
struct TileColumns {
  Index first;
  Index begin;
  Index end;
};

/// Stores a transposed tile: register i holds column `columns.first + i`.
template <class T>
FOVEA_INLINE void store_tile(const MixedColumnsArgs<T>& a, Index k, const TileColumns& columns,
                             Vec<T> (&tile)[kLanes<T>]) {
  constexpr Index w = kLanes<T>;
  transpose(tile);
  T* const to = a.out + k * a.row + columns.first * a.column;
  if (a.column == 1 && columns.begin <= columns.first && columns.first + w <= columns.end) {
    FOVEA_UNROLL
    for (Index i = 0; i < w; ++i) store(to + i * a.row, tile[i]);
    return;
  }
  const Index begin = columns.begin <= columns.first ? 0 : columns.begin - columns.first;
  const Index end = columns.end - columns.first < w ? columns.end - columns.first : w;
  for (Index i = 0; i < w; ++i) {
    alignas(kVecBytes) T lanes[w];
    store(lanes, tile[i]);
    for (Index c = begin; c < end; ++c) to[i * a.row + c * a.column] = lanes[c];
  }
}

/// Rows [k, k + lanes) of the columns of lanes / 2 pairs, from pair `first` of the call on.
template <class T>
FOVEA_INLINE void mix_tile(const MixedColumnsArgs<T>& a, Index first, Index k) {
  constexpr int w = kLanes<T>;
  Vec<T> low[w], high[w];
  FOVEA_UNROLL
  for (int p = 0; p < w / 2; ++p) {
    // Pairs beyond the last are not stored.
    const Index pair = first + p < a.pairs ? first + p : a.pairs - 1;
    const T* const z = a.spectra + pair * a.stride;
    const FourColumns<Vec<T>> columns =
        four_columns(load_complex<Vec<T>, false>(z + 2 * k),
                     load_complex<Vec<T>, true>(z + 2 * (a.rows - k)), set1<T>(T(0.5)));
    low[2 * p] = columns.at[0];
    low[2 * p + 1] = columns.at[1];
    high[w - 1 - 2 * p] = columns.at[2];
    high[w - 2 - 2 * p] = columns.at[3];
  }
  const Index column = 2 * (a.first + first);
  const Index own = a.width / 2 + 1;  // columns that are not mirror images
  store_tile(a, k, {column, 0, own}, low);
  store_tile(a, k, {a.width - column - w + 1, own, a.width}, high);
}

/// Row k of the columns of one pair.
template <class T>
FOVEA_INLINE void mix_one(const MixedColumnsArgs<T>& a, Index pair, Index k) {
  const T* const z = a.spectra + pair * a.stride;
  const FourColumns<One<T>> columns =
      four_columns(load_complex<One<T>, false>(z + 2 * k),
                   load_complex<One<T>, false>(z + 2 * (a.rows - k)), One<T>{T(0.5)});
  T* const to = a.out + k * a.row;
  const Index own = a.width / 2 + 1;
  for (Index i = 0; i < 2; ++i) {
    const Index column = 2 * (a.first + pair) + i;
    const Index mirror = a.width - column;
    if (column < own) to[column * a.column] = columns.at[i].raw;
    if (own <= mirror && mirror < a.width) to[mirror * a.column] = columns.at[2 + i].raw;
  }
}

template <class T>
FOVEA_NOINLINE void mixed_columns(const MixedColumnsArgs<T>& a) noexcept {
  constexpr Index w = kLanes<T>;
  Index k = 0;
  for (; k + w <= a.rows; k += w) {
    for (Index p = 0; p < a.pairs; p += w / 2) mix_tile(a, p, k);
  }
  for (; k < a.rows; ++k) {
    for (Index p = 0; p < a.pairs; ++p) mix_one(a, p, k);
  }
}
