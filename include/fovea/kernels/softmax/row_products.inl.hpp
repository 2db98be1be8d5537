// SPDX-License-Identifier: MIT
/// \file
/// The two products of few query rows with many keys. Scores have keys in the lanes, transposed in
/// registers, so that a logit is the same chain of multiply-adds over the columns as in
/// tile.inl.hpp. Values have the lanes along Dv, and keys in order. Both read K and V as they are
/// stored, once for R rows. Cost: 2 (D + Dv) flops for each pair, and log2(lanes) D / lanes
/// shuffles for each key, half of that for bfloat16.

#if !defined(FOVEA_LEVEL)  // Read alone: what it stands on.
#pragma once
#include "fovea/kernels/softmax/block.hpp"
#include "fovea/simd/stored_rows.inl.hpp"
#include "fovea/simd/transpose.inl.hpp"
#endif

/// The number of rows that share one transposition of K and one load of V: with the lanes x lanes
/// elements of a transposition they fill the registers.
inline constexpr int kRowsAtOnce = kVecRegisters == 32 ? 8 : 4;

/// Keys and values are asked for this many keys before they are read. Each tile reads first the
/// keys and then the values, too short a time for the hardware to foresee: without this a third of
/// the bandwidth is lost.
inline constexpr Index kKeysAhead = 64;

/// The number of vectors of stored elements in a cache line, at least 1.
template <Storage S, class T>
inline constexpr int kVectorsOfLine = larger(1, 64 / (kLanes<T> * kStoredBytes<S, T>));

/// Computes a * b + c for single numbers, as `fma` does for registers.
template <class T>
FOVEA_INLINE T fma_one(T a, T b, T c) {
  return fma(set1(a), set1(b), set1(c)).raw[0];
}

/// Computes R scores, q[r] K[j], of each of `count` keys, which are at most as many as lanes.
template <Storage S, class T>
struct KeyGroup {
  const void* k;  // element 0 of the first key stands at index `first`
  Index first;
  Index k_row;
  Index count;
  Index width;
  const T* q;  // [R, q_row], scaled
  Index q_row;
  T* scores;  // [R, kKeyTile]

  template <int R>
  FOVEA_INLINE void run() const {
    if (width == 0) {
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) store(scores + r * kKeyTile, zero<T>());
    }
    for (Index c = 0; c < width; c += kChain) {
      Vec<T> s[R];
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) s[r] = zero<T>();
      const Index end = smaller(c + kChain, width);
      if (S == Storage::bfloat16 && count == kLanes<T> && (end - c) % (2 * kLanes<T>) == 0) {
        for (Index at = c; at < end; at += 2 * kLanes<T>) pairs(at, s);
      } else if (count == kLanes<T> && (end - c) % kLanes<T> == 0) {
        for (Index at = c; at < end; at += kLanes<T>) whole(at, s);
      } else {
        for (Index at = c; at < end; at += kLanes<T>) rest(at, smaller(end - at, kLanes<T>), s);
      }
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) {
        T* p = scores + r * kKeyTile;
        store(p, c == 0 ? s[r] : load(p) + s[r]);
      }
    }
  }

 private:
  /// Adds columns [c, c + lanes) of as many keys as lanes.
  template <int R>
  FOVEA_INLINE void whole(Index c, Vec<T> (&s)[R]) const {
    constexpr int w = kLanes<T>;
    Vec<T> tile[w];
    FOVEA_UNROLL
    for (int i = 0; i < w; ++i) tile[i] = load_stored<S, T>(k, first + i * k_row + c);
    transpose(tile);
    FOVEA_UNROLL
    for (int i = 0; i < w; ++i) {
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) s[r] = fma(set1(q[r * q_row + c + i]), tile[i], s[r]);
    }
  }

  /// Adds columns [c, c + 2 lanes) of as many keys as lanes, for bfloat16: two neighbours are
  /// transposed as one element, and are then the upper and the lower half of a lane. That halves
  /// the shuffles.
  template <int R>
  FOVEA_INLINE void pairs(Index c, Vec<T> (&s)[R]) const {
    constexpr int w = kLanes<T>;
    Vec<T> tile[w];  // only shuffles and moves touch it
    FOVEA_UNROLL
    for (int i = 0; i < w; ++i) {
      __builtin_memcpy(&tile[i], short_element(k, first + i * k_row + c), kVecBytes);
    }
    transpose(tile);
    FOVEA_UNROLL
    for (int i = 0; i < w; ++i) {
      const Vec<T> even = from_bits<T>(bits(tile[i]) << 16);
      const Vec<T> odd = from_bits<T>(bits(tile[i]) & set1_int<T>(static_cast<Int<T>>(~0xffff)));
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) {
        const T* const q_r = q + r * q_row + c + 2 * i;
        s[r] = fma(set1(q_r[1]), odd, fma(set1(q_r[0]), even, s[r]));
      }
    }
  }

  /// Adds columns [c, c + n) of `count` keys.
  template <int R>
  FOVEA_INLINE void rest(Index c, Index n, Vec<T> (&s)[R]) const {
    constexpr int w = kLanes<T>;
    Vec<T> tile[w];
    FOVEA_UNROLL
    for (int i = 0; i < w; ++i) {
      tile[i] = i < count ? load_columns<S, T>(k, first + i * k_row, 1, c, c + n) : zero<T>();
    }
    transpose(tile);
    alignas(kVecBytes) T columns[w * w];
    FOVEA_UNROLL
    for (int i = 0; i < w; ++i) store(columns + i * w, tile[i]);
    for (Index i = 0; i < n; ++i) {
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) {
        s[r] = fma(set1(q[r * q_row + c + i]), load(columns + i * w), s[r]);
      }
    }
  }
};

/// Computes acc[r] = acc[r] rescale[r] + sum_j V[j] weights[r, j] for R rows, V vectors of columns
/// at a time. If kListed, j are the keys of a list instead of all keys.
template <int R, bool kListed, Storage S, class T>
struct ValueVectors {
  const void* v;  // element 0 of the first key stands at index `first`
  Index first;
  Index v_row;
  Index keys;
  Index ahead;        // how many keys ahead memory is asked for
  const Index* list;  // [keys]; only if kListed
  Index value_width;
  const T* weights;  // [R, kKeyTile]
  const T* rescale;  // [R]
  T* acc;            // [R, acc_row]
  Index acc_row;

  template <int V>
  FOVEA_INLINE void run(Index vector) const {
    const Index c = vector * kLanes<T>;
    Vec<T> sum[R][V];
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      FOVEA_UNROLL
      for (int x = 0; x < V; ++x) sum[r][x] = zero<T>();
    }
    FOVEA_UNROLL_BY(2)
    for (Index n = 0; n < keys; ++n) {
      const Index j = kListed ? list[n] : n;
      FOVEA_UNROLL
      for (int x = 0; x < V; x += kVectorsOfLine<S, T>) {
        const Index later = first + (j + ahead) * v_row + c + x * kLanes<T>;
        __builtin_prefetch(static_cast<const char*>(v) + later * kStoredBytes<S, T>, 0, 2);
      }
      Vec<T> value[V];
      FOVEA_UNROLL
      for (int x = 0; x < V; ++x) {
        value[x] = load_stored<S, T>(v, first + j * v_row + c + x * kLanes<T>);
      }
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) {
        const Vec<T> weight = set1(weights[r * kKeyTile + j]);
        FOVEA_UNROLL
        for (int x = 0; x < V; ++x) sum[r][x] = fma(value[x], weight, sum[r][x]);
      }
    }
    add(c, sum);
  }

  /// Computes the columns behind the last whole vector.
  FOVEA_INLINE void rest() const {
    const Index c = value_width / kLanes<T> * kLanes<T>;
    if (c == value_width) return;
    Vec<T> sum[R][1];
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) sum[r][0] = zero<T>();
    for (Index n = 0; n < keys; ++n) {
      const Index j = kListed ? list[n] : n;
      const Vec<T> value = load_columns<S, T>(v, first + j * v_row, 1, c, value_width);
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) {
        sum[r][0] = fma(value, set1(weights[r * kKeyTile + j]), sum[r][0]);
      }
    }
    add(c, sum);
  }

 private:
  template <int V>
  FOVEA_INLINE void add(Index c, const Vec<T> (&sum)[R][V]) const {
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      FOVEA_UNROLL
      for (int x = 0; x < V; ++x) {
        T* p = acc + r * acc_row + c + x * kLanes<T>;
        store(p, fma(load(p), set1(rescale[r]), sum[r][x]));
      }
    }
  }
};
