// SPDX-License-Identifier: MIT
/// \file
/// The values of one reduction block of a tile, multiplied in pairs of keys (simd/pairs.inl.hpp).

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/visible_keys.inl.hpp"
#include "fovea/simd/pairs.inl.hpp"
#endif

/// The pairs of the keys [begin, end) of a tile.
template <int V>
struct ChainPairs {
  static constexpr Index kRow = V * kLanes<float>;

  const VectorKeys<V>& keys;
  Index odd;
  Index first;          // pair of the tile
  VectorKeys<V> pairs;  // those of each vector, relative to `first`

  /// \param odd 1 if the tile's first key is the second of a pair, else 0
  FOVEA_INLINE ChainPairs(const VectorKeys<V>& of_vectors, Index odd_key, Index begin, Index end)
      : keys(of_vectors), odd(odd_key), first((begin + odd) / 2) {
    for (int v = 0; v < V; ++v) {
      const bool any = keys.begin[v] < keys.end[v];
      pairs.begin[v] = any ? (keys.begin[v] + odd) / 2 - first : 0;
      pairs.end[v] = any ? (keys.end[v] + odd + 1) / 2 - first : 0;
    }
    const bool wide = keys.wide_begin < keys.wide_end;
    const Index last = (end + odd + 1) / 2 - first;
    pairs.wide_begin = wide ? (keys.wide_begin + odd) / 2 - first : last;
    pairs.wide_end = wide ? (keys.wide_end + odd + 1) / 2 - first : last;
  }

  /// The first key of a pair, which may be before the tile.
  FOVEA_INLINE Index key(Index pair) const { return 2 * (first + pair) - odd; }

  /// to = weights rounded to bfloat16, 0 for keys that no lane of the vector sees.
  /// \param weights [keys of the tile, kRow]   \param to [pairs, kRow]
  FOVEA_NOINLINE void round_weights(const float* weights, Int<float>* to) const {
    for (int v = 0; v < V; ++v) {
      const Index lane = v * kLanes<float>;
      for (Index p = pairs.begin[v]; p < pairs.end[v]; ++p) {
        const float* const from = weights + key(p) * kRow + lane;
        const bool has_first = key(p) >= keys.begin[v];
        const bool has_second = key(p) + 1 < keys.end[v];
        store_int<float>(to + p * kRow + lane,
                         rounded_pairs(has_first ? load(from) : zero<float>(),
                                       has_second ? load(from + kRow) : zero<float>()));
      }
    }
  }

  /// Turns the lane masks of keys from \p begin on into masks of pairs.
  /// \param visible [keys, kRow] before, [pairs, kRow] after
  FOVEA_NOINLINE void mask_pairs_of(Index begin, Int<float>* visible) const {
    for (int v = 0; v < V; ++v) {
      for (Index p = pairs.begin[v]; p < pairs.end[v]; ++p) {
        const IntVec<float> first_mask = mask(v, key(p), begin, visible);
        const IntVec<float> second_mask = mask(v, key(p) + 1, begin, visible);
        store_int<float>(visible + p * kRow + v * kLanes<float>,
                         mask_pairs(first_mask, second_mask));
      }
    }
  }

 private:
  /// The lane mask of a key for vector v.
  FOVEA_INLINE IntVec<float> mask(int v, Index k, Index begin, const Int<float>* visible) const {
    if (k < keys.begin[v] || k >= keys.end[v]) return set1_int<float>(0);
    return load_int<float>(visible + (k - begin) * kRow + v * kLanes<float>);
  }
};

/// As value_chain_selected: hidden values are replaced by 0.
/// \param visible [pairs, V * lanes] masks of pairs
template <int V, class X, class T>
FOVEA_NOINLINE void value_pairs_selected(const X* v, Index v_row, const VectorKeys<V>& pairs,
                                         Index value_width, const X* visible, const X* weights,
                                         const T* rescale, T* acc) {
  for (Index c = 0; c < value_width; ++c) {
    FOVEA_UNROLL
    for (int i = 0; i < V; ++i) {
      const Index lane = i * kLanes<T>;
      Vec<T> sum = zero<T>();
      for (Index p = pairs.begin[i]; p < pairs.end[i]; ++p) {
        const Index at = p * V * kLanes<T> + lane;
        const IntVec<T> values = set1_operand(v[p * v_row + c]) & load_operand(visible + at);
        sum = add_product(values, load_operand(weights + at), sum);
      }
      T* const to = acc + c * V * kLanes<T> + lane;
      store(to, fma(load(to), load(rescale + lane), sum));
    }
  }
}
