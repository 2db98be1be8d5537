// SPDX-License-Identifier: MIT
/// \file
/// Rows of queries to lanes and back, by register transposes (simd/transpose.inl.hpp); rows may
/// have any storage, lanes have the arithmetic type.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/stored_rows.inl.hpp"
#include "fovea/simd/transpose.inl.hpp"
#endif

/// padded[i, 0...] = columns [c, c + lanes) of row i, 0 beyond `count` and `width`.
template <Storage S, class T>
FOVEA_NOINLINE void load_edge(const void* rows, Index row, Index column, Index count, Index c,
                              Index width, T* padded) {
  for (Index i = 0; i < kLanes<T>; ++i) {
    store(padded + i * kLanes<T>,
          i < count ? load_columns<S, T>(rows, i * row, column, c, width) : zero<T>());
  }
}

/// Columns [c, c + lanes) of as many rows, 0 beyond `count` and `width`. Prefetches the following
/// rows, if these are whole.
template <Storage S, class T>
FOVEA_INLINE void load_rows(const void* rows, Index row, Index column, Index count, Index c,
                            Index width, Vec<T> (&tile)[kLanes<T>]) {
  constexpr Index w = kLanes<T>;
  if (count >= w && column == 1 && c + w <= width) {
    const auto* next = static_cast<const char*>(rows) + c * kStoredBytes<S, T>;
    if (count >= 2 * w) next += w * row * kStoredBytes<S, T>;
    Index at = c;
    FOVEA_UNROLL
    for (int i = 0; i < w; ++i) {
      __builtin_prefetch(next);
      next += row * kStoredBytes<S, T>;
      tile[i] = load_stored<S, T>(rows, at);
      at += row;
    }
    return;
  }
  alignas(kVecBytes) T padded[w * w];
  load_edge<S, T>(rows, row, column, count, c, width, padded);
  FOVEA_UNROLL
  for (int i = 0; i < w; ++i) tile[i] = load(padded + i * w);
}

/// qt[c, i] = rows[i, c] * factor for i < count, else 0, for i < filled.
/// \param rows [count, width], count <= filled
/// \param qt [width rounded up to lanes, queries]
/// \param filled a multiple of the lanes, at most `queries`
template <Storage S, class T>
FOVEA_NOINLINE void rows_to_lanes(const void* rows, Index row, Index column, Index count,
                                  Index width, T factor, T* qt, Index queries, Index filled) {
  constexpr int w = kLanes<T>;
  for (Index first = 0; first < filled; first += w) {
    const Index at = first < count ? first * row : 0;
    const auto* from = static_cast<const char*>(rows) + at * kStoredBytes<S, T>;
    for (Index c = 0; c < width; c += w) {
      Vec<T> tile[w];
      load_rows<S>(from, row, column, count - first, c, width, tile);
      transpose(tile);
      FOVEA_UNROLL
      for (int i = 0; i < w; ++i) store(qt + (c + i) * queries + first, tile[i] * set1(factor));
    }
  }
}
template <Storage S, class T>
FOVEA_INLINE void rows_to_lanes(const StoredMatrix<S>& rows, Index count, Index width, T factor,
                                T* qt, Index queries, Index filled) {
  rows_to_lanes<S>(rows.data, rows.row, rows.column, count, width, factor, qt, queries, filled);
}
template <Storage S, class T>
FOVEA_INLINE void rows_to_lanes(const StoredMatrix<S>& rows, Index count, Index width, T factor,
                                T* qt, Index queries) {
  rows_to_lanes(rows, count, width, factor, qt, queries, queries);
}
template <class T>
FOVEA_INLINE void rows_to_lanes(const T* rows, Index row, Index column, Index count, Index width,
                                T factor, T* qt, Index queries) {
  rows_to_lanes<Storage::native, T>(rows, row, column, count, width, factor, qt, queries, queries);
}

/// Leaves rows unchanged.
struct SameRow {
  template <class T>
  FOVEA_INLINE Vec<T> operator()(Vec<T> x, Index, Index) const {
    return x;
  }
};

/// rows[i, c] = ot[c, i] for i < count, transformed by `change(columns from c, i, c)`.
/// \param ot [width rounded up to lanes, queries]
template <Storage S, class T, class Change>
FOVEA_NOINLINE void lanes_to_rows(const T* ot, Index queries, void* rows, Index row, Index column,
                                  Index count, Index width, const Change& change) {
  constexpr int w = kLanes<T>;
  alignas(kVecBytes) T lanes[w * w];
  for (Index first = 0; first < count; first += w) {
    const Index last = smaller(w, count - first);
    for (Index c = 0; c < width; c += w) {
      Vec<T> tile[w];
      FOVEA_UNROLL
      for (int i = 0; i < w; ++i) tile[i] = load(ot + (c + i) * queries + first);
      transpose(tile);
      FOVEA_UNROLL
      for (int i = 0; i < w; ++i) store(lanes + i * w, tile[i]);
      const bool is_whole = column == 1 && width - c >= w;
      for (Index i = 0; i < last; ++i) {
        const Vec<T> x = change(load(lanes + i * w), first + i, c);
        if (is_whole) {
          store_stored<S, T>(rows, (first + i) * row + c, x);
        } else {
          store_columns<S>(rows, (first + i) * row, column, c, width, x);
        }
      }
    }
  }
}
template <Storage S, class T, class Change>
FOVEA_INLINE void lanes_to_rows(const T* ot, Index queries, const OutputMatrix<S>& rows,
                                Index count, Index width, const Change& change) {
  if constexpr (S != Storage::native) {
    if (!rows.is_wide) {
      return lanes_to_rows<S>(ot, queries, rows.data, rows.row, rows.column, count, width, change);
    }
  }
  lanes_to_rows<Storage::native>(ot, queries, rows.data, rows.row, rows.column, count, width,
                                 change);
}
template <class T>
FOVEA_INLINE void lanes_to_rows(const T* ot, Index queries, T* rows, Index row, Index column,
                                Index count, Index width) {
  lanes_to_rows<Storage::native>(ot, queries, rows, row, column, count, width, SameRow{});
}
