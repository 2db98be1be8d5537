// SPDX-License-Identifier: MIT
/// \file
/// The keys of a run visible to rows of a block: as one range, as a range per vector of rows, and
/// as bounds in the lanes.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/integers.inl.hpp"
#include "fovea/simd/vec.inl.hpp"
#endif

/// The keys of one run that some rows see. All of the rows see those of [full_begin, full_end), and
/// some of them see those of [begin, end).
struct VisibleKeys {
  Index begin;
  Index full_begin;
  Index full_end;
  Index end;
};

/// The keys in [low, high) of a run visible to rows [row, row + rows) of a block.
inline VisibleKeys seen_keys(const KeyRun& run, Index row, Index rows, Index low, Index high) {
  if (rows <= 0) return {high, low, high, low};
  if (run.lower == nullptr) return {low, low, high, high};
  VisibleKeys seen{high, low, high, low};
  for (Index i = row; i < row + rows; ++i) {
    const Index first = larger(run.lower[i], low);
    const Index last = smaller(run.upper[i], high);
    seen.full_begin = larger(seen.full_begin, first);
    seen.full_end = smaller(seen.full_end, last);
    if (first < last) {
      seen.begin = smaller(seen.begin, first);
      seen.end = larger(seen.end, last);
    }
  }
  return seen;
}

/// For each vector v of a sub-block the keys [begin[v], end[v]) seen by some of its lanes: along a
/// pattern's edge, vectors see different keys. All vectors see [wide_begin, wide_end); if no key is
/// seen by all, both are after the last one.
template <int V>
struct VectorKeys {
  Index begin[V];
  Index end[V];
  Index wide_begin;
  Index wide_end;

  /// The same keys for all vectors.
  static FOVEA_INLINE VectorKeys all(Index first, Index last) {
    VectorKeys keys;
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) {
      keys.begin[v] = first;
      keys.end[v] = last;
    }
    keys.wide_begin = first;
    keys.wide_end = last;
    return keys;
  }

  FOVEA_INLINE VectorKeys within(Index low, Index high) const {
    VectorKeys keys;
    keys.wide_begin = low;
    keys.wide_end = high;
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) {
      keys.begin[v] = larger(begin[v], low);
      keys.end[v] = smaller(end[v], high);
      keys.wide_begin = larger(keys.wide_begin, keys.begin[v]);
      keys.wide_end = smaller(keys.wide_end, keys.end[v]);
    }
    if (keys.wide_begin >= keys.wide_end) keys.wide_begin = keys.wide_end = high;
    return keys;
  }

  /// Of the keys seen only by some vectors, vector v sees [begin[v], before_end(v)) and
  /// [behind_begin(v), end[v]).
  FOVEA_INLINE Index before_end(int v) const { return smaller(end[v], wide_begin); }
  FOVEA_INLINE Index behind_begin(int v) const { return larger(begin[v], wide_end); }

  /// The keys of all vectors are within [first(), last()), which is empty if first() >= last().
  FOVEA_INLINE Index first() const {
    Index least = kUnboundedKeys;
    for (int v = 0; v < V; ++v) {
      if (begin[v] < end[v]) least = smaller(least, begin[v]);
    }
    return least;
  }
  FOVEA_INLINE Index last() const {
    Index most = 0;
    for (int v = 0; v < V; ++v) {
      if (begin[v] < end[v]) most = larger(most, end[v]);
    }
    return most;
  }
};

/// The keys of a tile visible to each lane: [lower, upper), relative to the tile's first one.
template <int V, class T>
struct LaneBounds {
  alignas(kVecBytes) Int<T> lower[V * kLanes<T>];
  alignas(kVecBytes) Int<T> upper[V * kLanes<T>];

  FOVEA_INLINE IntVec<T> sees(int v, Index key) const {
    const IntVec<T> j = set1_int<T>(static_cast<Int<T>>(key));
    const IntVec<T> low = load_int<T>(lower + v * kLanes<T>);
    const IntVec<T> high = load_int<T>(upper + v * kLanes<T>);
    return ~(j < low) & (j < high);
  }
  FOVEA_INLINE IntVec<T> sees_any(int v) const {
    return load_int<T>(lower + v * kLanes<T>) < load_int<T>(upper + v * kLanes<T>);
  }
};

/// Writes the bounds of rows [row, row + rows) into the lanes, relative to key `begin` of the run
/// and clamped to `keys`. Lanes beyond the rows see nothing.
template <int V, class T>
FOVEA_NOINLINE void set_bounds(LaneBounds<V, T>& bounds, const KeyRun& run, Index row, Index rows,
                               Index begin, Index keys) {
  constexpr Index lanes = V * kLanes<T>;
  const Index real = smaller(rows, lanes);
  const auto cut = static_cast<Int<T>>(keys);
  for (Index i = 0; i < lanes; ++i) {
    bounds.lower[i] = 0;
    bounds.upper[i] = i < real ? cut : 0;
  }
  if (run.lower != nullptr) {
    for (Index i = 0; i < real; ++i) {
      bounds.lower[i] = static_cast<Int<T>>(clamped(run.lower[row + i] - begin, 0, keys));
    }
  }
  if (run.upper != nullptr) {
    for (Index i = 0; i < real; ++i) {
      bounds.upper[i] = static_cast<Int<T>>(clamped(run.upper[row + i] - begin, 0, keys));
    }
  }
}
