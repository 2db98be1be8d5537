// SPDX-License-Identifier: MIT
/// \file
/// Transposes rows of a few channels into one sequence per channel, and back, in register blocks.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/spectral/cross.hpp"
#include "fovea/simd/transpose.inl.hpp"
#endif

/// Loads the channels from c on, one in each lane. Lanes beyond the last channel are 0.
template <class T>
FOVEA_INLINE Vec<T> load_channels(const T* row, Index column, Index c, Index channels) {
  if (column == 1 && c + kLanes<T> <= channels) return load(row + c);
  alignas(kVecBytes) T lanes[kLanes<T>] = {};
  for (Index i = c; i < channels && i < c + kLanes<T>; ++i) lanes[i - c] = row[i * column];
  return load(lanes);
}

/// Stores the lanes of x as the channels from c on; lanes beyond the last channel are skipped.
template <class T>
FOVEA_INLINE void store_channels(T* row, Index column, Index c, Index channels, Vec<T> x) {
  if (column == 1 && c + kLanes<T> <= channels) return store(row + c, x);
  alignas(kVecBytes) T lanes[kLanes<T>];
  store(lanes, x);
  for (Index i = c; i < channels && i < c + kLanes<T>; ++i) row[i * column] = lanes[i - c];
}

/// sequences[c, i] = rows[i, c] for i < count, and 0 from there up to the length.
template <class T>
FOVEA_NOINLINE void gather_channels(const GatherChannelsArgs<T>& a) noexcept {
  constexpr int w = kLanes<T>;
  for (Index first = 0; first < a.length; first += w) {
    for (Index c = 0; c < a.channels; c += w) {
      Vec<T> tile[w];
      if (first + w <= a.count) {
        const bool is_far = first + Index{3} * w <= a.count;
        const T* const ahead = a.rows + (is_far ? first + Index{2} * w : first) * a.row;
        FOVEA_UNROLL
        for (int i = 0; i < w; ++i) {
          __builtin_prefetch(ahead + i * a.row + c * a.column);
          tile[i] = load_channels(a.rows + (first + i) * a.row, a.column, c, a.channels);
        }
      } else {
        for (int i = 0; i < w; ++i) {
          tile[i] = first + i < a.count
                        ? load_channels(a.rows + (first + i) * a.row, a.column, c, a.channels)
                        : zero<T>();
        }
      }
      transpose(tile);
      FOVEA_UNROLL
      for (int i = 0; i < w; ++i) store(a.sequences + (c + i) * a.stride + first, tile[i]);
    }
  }
}

/// rows[i, c] = sequences[c, i] for i < count. The rows from there on become +0.
template <class T>
FOVEA_NOINLINE void scatter_channels(const ScatterChannelsArgs<T>& a) noexcept {
  constexpr int w = kLanes<T>;
  for (Index first = 0; first < a.count; first += w) {
    for (Index c = 0; c < a.channels; c += w) {
      Vec<T> tile[w];
      const bool is_far = first + Index{5} * w <= a.count;
      const T* const ahead =
          a.rows + c * a.column + (is_far ? first + Index{4} * w : first) * a.row;
      const Index step = is_far ? a.row : 0;
      FOVEA_UNROLL
      for (int i = 0; i < w; ++i) {
        __builtin_prefetch(ahead + i * step, 1);
        tile[i] = load(a.sequences + (c + i) * a.stride + first);
      }
      transpose(tile);
      if (first + w <= a.count) {
        FOVEA_UNROLL
        for (int i = 0; i < w; ++i) {
          store_channels(a.rows + (first + i) * a.row, a.column, c, a.channels, tile[i]);
        }
      } else {
        for (int i = 0; first + i < a.count; ++i) {
          store_channels(a.rows + (first + i) * a.row, a.column, c, a.channels, tile[i]);
        }
      }
    }
  }
  for (Index i = a.count; i < a.length; ++i) {
    for (Index c = 0; c < a.channels; ++c) a.rows[i * a.row + c * a.column] = 0;
  }
}
