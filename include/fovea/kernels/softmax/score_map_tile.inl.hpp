// SPDX-License-Identifier: MIT
/// \file
/// The score map on the tiles of the forward and the backward kernel, with queries in the lanes.
/// Cost for each pair: a load of bias or mask and a few operations; the soft cap takes some 25
/// operations, and dropout a Philox draw.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/score_map.inl.hpp"
#include "fovea/kernels/softmax/score_modifier.inl.hpp"
#include "fovea/kernels/softmax/visible_keys.inl.hpp"
#include "fovea/simd/transpose.inl.hpp"
#endif

/// The location of a tile in its head. Lane i is the query row `row + row_step i` for i < rows,
/// possibly beyond the tile; other lanes are padding. Key j of the tile is at position `key +
/// key_step j`. The position of a query is its row + first_position. Bias and mask have a row for
/// each query row and a column for each key position.
struct TilePlace {
  Index row = 0;
  Index row_step = 1;
  Index rows = 0;
  Index key = 0;
  Index key_step = 1;
  Index first_position = 0;

  /// The same location, from some lane on.
  FOVEA_INLINE TilePlace from_lane(Index lane) const {
    return {row + row_step * lane, row_step, larger(0, rows - lane), key, key_step, first_position};
  }
  FOVEA_INLINE Index query_position() const { return row + first_position; }
};

/// A tile's part of a matrix of logits: row 0 is its lane 0, column 0 its key 0.
template <class X>
FOVEA_INLINE Matrix<const X> tile_part(const Matrix<const X>& m, const TilePlace& place) {
  if (m.data == nullptr) return {};
  return {m.data + place.row * m.row + place.key * m.column, m.row * place.row_step,
          m.column * place.key_step};
}

/// Prefetches row i of the next vector of queries. A head's matrix of logits seldom fits a cache,
/// and its rows are too many streams for the hardware prefetcher. One row at a time, since many
/// prefetches would delay later loads.
template <class X>
FOVEA_INLINE void prefetch_next_lanes(const Matrix<const X>& m, Index rows, Index w, Index i) {
  __builtin_prefetch(m.data + smaller(w + i, rows - 1) * m.row, 0, 2);
}

/// Transposes the first n elements of each row, at most a register, into the lanes, in pieces of
/// sizeof(T) bytes. It writes 0 beyond rows and elements.
/// \param lanes [lanes, lanes]
template <class T, class X>
FOVEA_INLINE void transpose_rows(const Matrix<const X>& m, Index rows, Index n, T* lanes) {
  constexpr Index w = kLanes<T>;
  constexpr auto columns = kVecBytes / static_cast<Index>(sizeof(X));
  Vec<T> tile[w];
  if (rows >= w && n == columns && m.column == 1) {
    FOVEA_UNROLL
    for (Index i = 0; i < w; ++i) __builtin_memcpy(&tile[i], m.data + i * m.row, kVecBytes);
  } else {
    alignas(kVecBytes) X padded[w * columns] = {};
    for (Index i = 0; i < smaller(rows, w); ++i) {
      for (Index r = 0; r < n; ++r) padded[i * columns + r] = m.data[i * m.row + r * m.column];
    }
    FOVEA_UNROLL
    for (Index i = 0; i < w; ++i) __builtin_memcpy(&tile[i], padded + i * columns, kVecBytes);
  }
  transpose(tile);
  FOVEA_UNROLL
  for (Index i = 0; i < w; ++i) store(lanes + i * w, tile[i]);
}

/// Transposes the bias of n <= lanes keys into the lanes.
/// \param m the bias from its first key on
/// \param lanes [lanes, lanes], written; arbitrary without a row
template <class T>
FOVEA_NOINLINE void load_bias(const Matrix<const T>& m, Index rows, Index n, T* lanes) {
  constexpr Index w = kLanes<T>;
  if (m.row == 0) {
    for (Index r = 0; r < n; ++r) store(lanes + r * w, set1(m.data[r * m.column]));
  } else if (m.row == 1 && rows >= w) {
    for (Index r = 0; r < n; ++r) {
      __builtin_prefetch(m.data + r * m.column + smaller(2 * w, rows - 1), 0, 2);
      store(lanes + r * w, load(m.data + r * m.column));
    }
  } else {
    transpose_rows(m, rows, n, lanes);
  }
}

/// The mask of up to kVecBytes keys for one vector of lanes: each lane of word g holds its row's
/// bytes for keys from g sizeof(T) on. Only moves and shuffles touch them.
template <class T>
struct MaskWords {
  alignas(kVecBytes) T at[kLanes<T> * kLanes<T>];

  /// \param m the mask from the first of these keys on
  FOVEA_NOINLINE void read(const Matrix<const bool>& m, Index rows, Index n) {
    if (m.row != 0) return transpose_rows(m, rows, n, at);
    constexpr auto size = static_cast<Index>(sizeof(T));
    for (Index g = 0; g * size < n; ++g) {
      const bool* first = m.data + g * size * m.column;
      Int<T> word = 0;
      if (m.column == 1 && n - g * size >= size) {
        __builtin_memcpy(&word, first, sizeof(T));
      } else {
        bool bytes[size] = {};
        for (Index b = 0; b < smaller(size, n - g * size); ++b) bytes[b] = first[b * m.column];
        __builtin_memcpy(&word, bytes, sizeof(T));
      }
      store(at + g * kLanes<T>, from_bits<T>(set1_int<T>(word)));
    }
  }

  /// The keys from a multiple of sizeof(T) on, in order.
  struct Keys {
    IntVec<T> word;
    IntVec<T> byte = set1_int<T>(0xff);

    /// Which lanes see the key; advances to the next key.
    FOVEA_INLINE IntVec<T> next() {
      const IntVec<T> sees{(word & byte).raw != typename IntVec<T>::Raw{}};
      byte = byte << 8;
      return sees;
    }
  };

  /// \param key a multiple of sizeof(T); valid for sizeof(T) keys
  FOVEA_INLINE Keys from(Index key) const {
    return {bits(load(at + key / static_cast<Index>(sizeof(T)) * kLanes<T>))};
  }
};

/// Applies bias, ALiBi and visibility to one vector of queries of a tile.
template <class T>
struct ShiftedLanes {
  const ScoreMap<T>& map;
  TilePlace place;      // location from the first of these lanes on
  const Int<T>* lower;  // bounds of these lanes, or null
  const Int<T>* upper;
  T* scores;         // scores of these lanes
  Index row_length;  // stride of keys
  Int<T>* seen;      // [lanes] as in shift_tile, or null
  T* most;           // [lanes] as in shift_tile, or null

  /// Processes keys [begin, end) with the map's options. The compact baseline checks these at each
  /// key.
  template <bool... kHas>
  FOVEA_INLINE void choose(Index begin, Index end) const {
    if constexpr (kIsCompact) return run<true, true, true>(begin, end);
    const bool has[] = {map.bias.data != nullptr, map.mask.data != nullptr, map.alibi_slope != 0};
    if constexpr (sizeof...(kHas) == 3) {
      run<kHas...>(begin, end);
    } else if (has[sizeof...(kHas)]) {
      choose<kHas..., true>(begin, end);
    } else {
      choose<kHas..., false>(begin, end);
    }
  }

 private:
  template <bool kBias, bool kMask, bool kAlibi>
  FOVEA_NOINLINE void run(Index begin, Index end) const {
    constexpr Index w = kLanes<T>;
    const bool has_bias = kBias && (!kIsCompact || map.bias.data != nullptr);
    const bool has_mask = kMask && (!kIsCompact || map.mask.data != nullptr);
    const bool has_alibi = kAlibi && (!kIsCompact || map.alibi_slope != 0);
    const bool has_bounds = lower != nullptr;
    const IntVec<T> low = has_bounds ? load_int<T>(lower) : set1_int<T>(0);
    const IntVec<T> high = has_bounds ? load_int<T>(upper) : set1_int<T>(0);
    const Matrix<const T> bias = tile_part(map.bias, place);
    const Matrix<const bool> mask = tile_part(map.mask, place);
    const T factor = alibi_factor(map.alibi_slope);
    IntVec<T> distance = lane_positions<T>(
        place.query_position() - place.key - place.key_step * begin, place.row_step);
    const IntVec<T> key_step = set1_int<T>(static_cast<Int<T>>(place.key_step));
    const Index length = row_length;
    IntVec<T> any_visible = set1_int<T>(0);
    Vec<T> largest = set1(kMinusInfinity<T>);
    alignas(kVecBytes) T bias_lanes[w * w];
    MaskWords<T> words;
    typename MaskWords<T>::Keys mask_keys = {};
    constexpr auto kWordKeys = static_cast<Index>(sizeof(T));
    Index masked = begin;  // words hold the keys [masked - kVecBytes, masked)
    for (Index first = begin; first < end; first += w) {
      const Index n = smaller(w, end - first);
      if (has_mask) {
        if (first == masked) {
          words.read(from_key(mask, first), place.rows, smaller(kVecBytes, end - first));
          masked += kVecBytes;
        }
      }
      if (has_bias) load_bias(from_key(bias, first), place.rows, n, bias_lanes);
      T* p = scores + first * length;
      for (Index r = 0; r < n; ++r, p += length) {
        Vec<T> t = load(p);
        IntVec<T> visible = set1_int<T>(-1);
        if (has_bias) {
          prefetch_next_lanes(from_key(bias, first), place.rows, w, r);
          const Vec<T> more = load(bias_lanes + r * w);
          t = add_bias(t, more);
          visible = ~hides_pair(more);
        }
        if (has_alibi) {
          t = subtract_alibi(t, factor, distance);
          distance = distance - key_step;
        }
        if (has_mask) {
          const Index key = first + r + kVecBytes - masked;
          if (key % kWordKeys == 0) {
            prefetch_next_lanes(from_key(mask, first), place.rows, w, key / kWordKeys);
            mask_keys = words.from(key);
          }
          visible = visible & mask_keys.next();
        }
        if (has_bounds) {
          const IntVec<T> key = set1_int<T>(static_cast<Int<T>>(first + r));
          visible = visible & ~(key < low) & (key < high);
        }
        if (has_bias || has_mask || has_bounds) t = select(visible, t, set1(kMinusInfinity<T>));
        store(p, t);
        largest = maximum(largest, t);
        any_visible = any_visible | visible;
      }
    }
    if (seen != nullptr) store_int<T>(seen, load_int<T>(seen) | any_visible);
    if (most != nullptr) store(most, largest);
  }

  template <class X>
  static FOVEA_INLINE Matrix<const X> from_key(const Matrix<const X>& m, Index j) {
    return {m.data + j * m.column, m.row, m.column};
  }
};

/// Applies the soft cap to keys [begin, end) of a tile.
/// \pre map.soft_cap != 0
/// \param scores [keys, V * lanes]
/// \param most [V * lanes] becomes the largest of them; or null
template <int V, class T>
FOVEA_NOINLINE void cap_tile(const ScoreMap<T>& map, Index begin, Index end, T* scores,
                             T* most = nullptr) {
  const SoftCapFactors<T> factors = cap_factors(map.soft_cap);
  Vec<T> m[V];
  FOVEA_UNROLL
  for (int v = 0; v < V; ++v) m[v] = set1(kMinusInfinity<T>);
  for (Index j = begin; j < end; ++j) {
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) {
      T* const p = scores + (j * V + v) * kLanes<T>;
      const Vec<T> t = cap_logits(load(p), factors);
      store(p, t);
      m[v] = maximum(m[v], t);
    }
  }
  if (most == nullptr) return;
  FOVEA_UNROLL
  for (int v = 0; v < V; ++v) store(most + v * kLanes<T>, m[v]);
}

/// Applies the user's modifier to keys [begin, end) of a tile.
/// \pre map.modifier.is_used()
/// \param scores [keys, V * lanes]
/// \param slopes [keys, V * lanes], multiplied by the derivatives; or null
/// \param most [V * lanes] becomes the largest of them; or null
template <int V, class T>
FOVEA_NOINLINE void modify_tile(const ScoreMap<T>& map, const TilePlace& place, Index begin,
                                Index end, T* scores, T* slopes, T* most = nullptr) {
  constexpr Index lanes = V * kLanes<T>;
  PairRow pairs{
      map.dropout.batch,          map.dropout.head, place.query_position(), place.row_step, 0, 0,
      smaller(place.rows, lanes), place.row};
  for (Index j = begin; j < end; ++j) {
    pairs.key = place.key + place.key_step * j;
    modify_row(map.modifier, pairs, scores + j * lanes,
               slopes == nullptr ? nullptr : slopes + j * lanes);
  }
  if (most == nullptr) return;
  for (int v = 0; v < V; ++v) {
    store(most + v * kLanes<T>, largest_of<V>(scores + v * kLanes<T>, begin, end));
  }
}

/// Applies bias and ALiBi to keys [begin, end) of a tile; pairs that the map or the bounds hide
/// become -infinity.
/// \param bounds null: all pairs are within them
/// \param scores [keys, V * lanes]
/// \param seen [V * lanes]: lanes that see one of these keys become -1; or null
/// \param most [V * lanes] becomes the largest of these logits; or null
template <int V, class T>
FOVEA_INLINE void shift_tile(const ScoreMap<T>& map, const TilePlace& place,
                             const LaneBounds<V, T>* bounds, Index begin, Index end, T* scores,
                             Int<T>* seen, T* most = nullptr) {
  constexpr Index w = kLanes<T>;
  for (Index lane = 0; lane < V * w; lane += w) {
    if (lane < place.rows) {
      const Int<T>* lower = bounds == nullptr ? nullptr : bounds->lower + lane;
      const Int<T>* upper = bounds == nullptr ? nullptr : bounds->upper + lane;
      const ShiftedLanes<T> lanes{map,
                                  place.from_lane(lane),
                                  lower,
                                  upper,
                                  scores + lane,
                                  V * w,
                                  seen == nullptr ? nullptr : seen + lane,
                                  most == nullptr ? nullptr : most + lane};
      lanes.choose(begin, end);
    } else if (most != nullptr) {
      store(most + lane, set1(kMinusInfinity<T>));
    }
  }
}

/// Writes the visibility of each pair of a tile, for the selecting paths.
/// \param bounds null: all pairs are within them
template <int V, class T>
FOVEA_NOINLINE IntVec<T> visible_lanes(const ScoreMap<T>& map, const TilePlace& place,
                                       const LaneBounds<V, T>* bounds, Index j, int v) {
  const TilePlace lanes = place.from_lane(v * kLanes<T>);
  const Matrix<const T> bias = tile_part(map.bias, lanes);
  const Matrix<const bool> mask = tile_part(map.mask, lanes);
  alignas(kVecBytes) Int<T> visible[kLanes<T>];
  for (Index i = 0; i < kLanes<T>; ++i) {
    bool sees = i < lanes.rows;
    if (sees && bias.data != nullptr) {
      sees = bias.data[i * bias.row + j * bias.column] != kMinusInfinity<T>;
    }
    if (sees && mask.data != nullptr) sees = mask.data[i * mask.row + j * mask.column];
    visible[i] = sees ? -1 : 0;
  }
  const IntVec<T> all = load_int<T>(visible);
  return bounds == nullptr ? all : all & bounds->sees(v, j);
}

/// Computes the dropout factors of keys [begin, end) for one vector of queries, and multiplies by
/// them or writes them.
template <bool kMultiply, class T>
FOVEA_NOINLINE void dropout_lanes(const DropoutMap& map, const TilePlace& place, Index begin,
                                  Index end, T* to, Index row_length) {
  const DropoutFactors<T> factors(map);
  const IntVec<T> i = lane_positions<T>(place.query_position(), place.row_step);
  for (Index j = begin; j < end; ++j) {
    const IntVec<T> key = lane_positions<T>(place.key + place.key_step * j, 0);
    const Vec<T> factor = factors.factor(i, key);
    T* const p = to + j * row_length;
    store(p, kMultiply ? load(p) * factor : factor);
  }
}

/// Multiplies the weights of keys [begin, end) of a tile by their dropout factors.
/// \param weights [keys, V * lanes]
template <int V, class T>
FOVEA_INLINE void dropout_tile(const DropoutMap& map, const TilePlace& place, Index begin,
                               Index end, T* weights) {
  for (Index lane = 0; lane < smaller(place.rows, V * kLanes<T>); lane += kLanes<T>) {
    dropout_lanes<true>(map, place.from_lane(lane), begin, end, weights + lane, V * kLanes<T>);
  }
}

/// Writes the dropout factors of keys [begin, end) of a tile, and of its padding.
/// \param factors [keys, V * lanes]
template <int V, class T>
FOVEA_INLINE void dropout_factors(const DropoutMap& map, const TilePlace& place, Index begin,
                                  Index end, T* factors) {
  for (Index lane = 0; lane < V * kLanes<T>; lane += kLanes<T>) {
    dropout_lanes<false>(map, place.from_lane(lane), begin, end, factors + lane, V * kLanes<T>);
  }
}
