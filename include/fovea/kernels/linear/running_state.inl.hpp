// SPDX-License-Identifier: MIT
/// \file
/// The running state of one feature map and key head: drift-free sums over all closed chunks, and
/// the open chunk's individual tokens.
///
/// The sums are (high + low) + local. `local` sums the chunks of one segment from 0; at the
/// segment's end it is added to the double word (high, low). Rows read `read` = high + local. The
/// products of a chunk are two chains for each element. The normaliser is added to its double word
/// chunk by chunk: that is cheap, and everything is divided by it.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/feature_map.inl.hpp"
#include "fovea/kernels/linear/linear.hpp"
#include "fovea/kernels/linear/segments.hpp"
#include "fovea/simd/register_block.inl.hpp"
#include "fovea/simd/transpose.inl.hpp"
#endif

/// The width of q and k, where a row has `width` features.
template <class T>
FOVEA_INLINE Index row_width(const LinearMaps<T>& maps, Index width) {
  return maps.joined == 1 ? width : maps.width;
}

/// The columns of a matrix from a given one on.
template <class T, Storage S>
FOVEA_INLINE StoredMatrix<S> columns_from(const StoredMatrix<S>& m, Index first) {
  const Index offset = first * m.column * element_bytes<T>(m);
  return {static_cast<const char*>(m.data) + offset, m.row, m.column};
}

/// Features of maps whose rows are not whole cache lines are computed in parts of this size, and
/// copied to be concatenated.
inline constexpr Index kFeaturePart = 64;

/// Writes the features of one row for several maps concatenated, then zeros.
template <Storage S, class T>
FOVEA_NOINLINE void joined_features(const FeatureMapArgs<T>* maps, Index joined,
                                    const StoredMatrix<S>& x, Index width, T* to) {
  alignas(kVecBytes) T part[kFeaturePart];
  for (Index m = 0; m < joined; ++m) {
    for (Index c = 0; c < width; c += kFeaturePart) {
      const Index n = smaller(kFeaturePart, width - c);
      map_rows(maps[m], columns_from<T>(x, c), 1, n, part, kFeaturePart);
      __builtin_memcpy(to + m * width + c, part, static_cast<std::size_t>(n) * sizeof(T));
    }
  }
  for (Index c = joined * width; c < padded_row<T>(joined * width); ++c) to[c] = T{};
}

/// Writes the features of rows for denominator l: those of one map, or several concatenated.
/// \param width the number of features
/// \param to [count, padded_row(width)], with row stride to_row
template <Storage S, class T>
FOVEA_INLINE void feature_rows(const LinearMaps<T>& maps, Index l, const StoredMatrix<S>& x,
                               Index count, Index width, T* to, Index to_row) {
  const Index of_row = row_width(maps, width);
  const FeatureMapArgs<T>* const of_sum = maps.maps + l * maps.joined;
  if (maps.joined == 1 || padded_row<T>(of_row) == of_row) {
    for (Index m = 0; m < maps.joined; ++m) {
      map_rows(of_sum[m], x, count, of_row, to + m * of_row, to_row);
    }
    return;
  }
  for (Index i = 0; i < count; ++i) {
    joined_features(of_sum, maps.joined, every_row<T>(x, i, 1), of_row, to + i * to_row);
  }
}

template <class T>
struct RunningState {
  Index width;      // D
  Index row;        // elements of a row of features or of the normaliser: D padded
  Index value_row;  // Dv padded
  Index elements;   // width * value_row + row
  T* high;          // [elements]: [D, value_row], then the normaliser [row]
  T* low;           // [elements]
  T* local;         // [elements]
  T* read;          // [elements]
  T* features;      // [kLinearChunk, row] of the open chunk's keys, 0 beyond D
  T* lanes;         // [row, kLinearChunk] the same, transposed
  T* run;           // [kLinearChunk, row] sums of features up to each token, itself included
  const T* values;  // [kLinearChunk, value_row], 0 beyond Dv

  FOVEA_INLINE T* normaliser() const { return read + width * value_row; }
  /// The sum of the features of a full chunk.
  FOVEA_INLINE const T* last_run() const { return run + (kLinearChunk - 1) * row; }
};

/// The state of map l of `state` (linear_state_elements).
template <class T>
FOVEA_INLINE RunningState<T> running_state(T* state, Index width, Index value_width, Index l) {
  RunningState<T> s;
  s.width = width;
  s.row = padded_row<T>(width);
  s.value_row = padded_row<T>(value_width);
  s.elements = width * s.value_row + s.row;
  s.values = state;
  const Index chunk = kLinearChunk * s.row;
  s.high = state + kLinearChunk * s.value_row + l * (4 * s.elements + 3 * chunk);
  s.low = s.high + s.elements;
  s.local = s.low + s.elements;
  s.read = s.local + s.elements;
  s.features = s.read + s.elements;
  s.lanes = s.features + chunk;
  s.run = s.lanes + chunk;
  return s;
}

template <class T>
FOVEA_NOINLINE void clear_elements(T* p, Index count) {
  for (Index i = 0; i < count; i += kLanes<T>) store(p + i, zero<T>());
}

template <class T>
FOVEA_NOINLINE void copy_elements(const T* from, Index count, T* to) {
  for (Index i = 0; i < count; i += kLanes<T>) store(to + i, load(from + i));
}

/// Clears the open chunk. Lanes beyond the last key compute with its memory; their results are
/// unused, but must not be slow.
template <class T>
FOVEA_INLINE void clear_chunk(const RunningState<T>& s) {
  clear_elements(s.features, 3 * kLinearChunk * s.row);
}

/// Resets it to the state without tokens.
template <class T>
FOVEA_INLINE void clear_state(const RunningState<T>& s) {
  clear_elements(s.high, 4 * s.elements);
  clear_chunk(s);
}

/// Sets the state that rows read: the sums of earlier segments, those of earlier chunks, and a
/// normaliser.
/// \param chunks [D, value_row]; null: none
template <class T>
FOVEA_NOINLINE void set_state(const RunningState<T>& s, const T* start, const T* chunks,
                              const T* normaliser) {
  for (Index i = 0; i < s.width * s.value_row; i += kLanes<T>) {
    const Vec<T> before = load(start + i);
    store(s.read + i, chunks == nullptr ? before : before + load(chunks + i));
  }
  copy_elements(normaliser, s.row, s.normaliser());
}

/// Adds x, the sum of a segment, to (high, low): high remains the number nearest to the sum.
/// Infinities and NaN are preserved.
template <class T>
FOVEA_INLINE void add_to_double_word(Vec<T>& high, Vec<T>& low, Vec<T> x) {
  const Vec<T> sum = high + x;
  const Vec<T> part = sum - high;
  const Vec<T> rest = low + ((high - (sum - part)) + (x - part));
  const IntVec<T> finite = (sum - sum) == zero<T>();
  high = select(finite, sum + rest, sum);
  low = select(finite, rest - (high - sum), zero<T>());
}

/// Ends a segment.
template <class T>
FOVEA_NOINLINE void fold_segment(const RunningState<T>& s) {
  for (Index i = 0; i < s.elements; i += kLanes<T>) {
    Vec<T> high = load(s.high + i);
    Vec<T> low = load(s.low + i);
    add_to_double_word(high, low, load(s.local + i));
    store(s.high + i, high);
    store(s.low + i, low);
    store(s.local + i, zero<T>());
    store(s.read + i, high);
  }
}

/// The column vectors of register blocks of states and outputs.
inline constexpr int kStateVectors = Arch::kStateVectors;

/// Adapts a functor for groups of vectors to units of Unit vectors.
template <int Unit, class Functor>
struct WholeUnits {
  const Functor& functor;

  template <int R>
  FOVEA_INLINE void run(Index unit) const {
    functor.template run<R * Unit>(unit * Unit);
  }
};

/// Cuts the vectors of a row, padded to whole cache lines, into groups of kStateVectors and fewer;
/// groups below a line, or below the largest group, never occur.
template <class T, class Functor>
FOVEA_INLINE void for_state_vectors(Index padded_width, const Functor& functor) {
  constexpr int unit = smaller(kStateVectors, 64 / kVecBytes);
  for_row_blocks<kStateVectors / unit>(0, padded_width / (unit * kLanes<T>),
                                       WholeUnits<unit, Functor>{functor});
}

/// The next tokens, to prefetch.
struct TokenPrefetcher {
  RowPrefetcher<0> k;
  RowPrefetcher<0> v;

  FOVEA_INLINE void prefetch(Index tokens) {
    k.prefetch(tokens);
    v.prefetch(tokens);
  }
};

/// Computes block[d] = sum of features[i, d] * values[i] over the tokens, in two chains.
/// \param features [tokens, R]
/// \param values [tokens, V * lanes]
template <int R, int V, class T>
FOVEA_INLINE void multiply_tokens(RegisterBlock<R, V, T>& block, const T* features,
                                  Index features_row, const T* values, Index values_row,
                                  Index tokens) {
  const Index half = tokens / 2;
  alignas(kVecBytes) T first[R * V * kLanes<T>];
  // One loop over both, to generate the code of the products once.
  for (bool is_second = false;; is_second = true) {
    const Index begin = is_second ? half : 0;
    block.clear();
    block.multiply_add(features + begin * features_row, 1, features_row,
                       values + begin * values_row, values_row, is_second ? tokens - half : half);
    if (is_second) break;
    block.store_to(first, V * kLanes<T>);
  }
  block.add_from(first, V * kLanes<T>);
}

/// The sums of a segment before and after a chunk, and the state that they complete.
template <class T>
struct ChunkSums {
  const T* before;  // [D, value_row]
  T* with;          // [D, value_row], written; it may be `before`
  const T* base;    // [D, value_row]: earlier segments
  T* state;         // [D, value_row], written: base + with; null: not requested
};

/// Adds the products of a chunk to the V vectors of columns from `c` on.
template <int V, class T>
struct ChunkProducts {
  const RunningState<T>& s;
  const ChunkSums<T>& sums;
  TokenPrefetcher& after;
  Index c;

  template <int R>
  FOVEA_INLINE void run(Index d) const {
    RegisterBlock<R, V, T> block;
    multiply_tokens(block, s.features + d, s.row, s.values + c, s.value_row, kLinearChunk);
    // Read once: to the compiler, a store might alias the sums.
    const Index row = s.value_row;
    const Index first = d * row + c;
    block.add_from(sums.before + first, row);
    T* const with = sums.with + first;
    const T* const base = sums.base + first;
    T* const state = sums.state == nullptr ? nullptr : sums.state + first;
    block.store_to(with, row);
    if (state != nullptr) {
      block.add_from(base, row);
      block.store_to(state, row);
    }
    after.prefetch(R / 2);
  }
};

template <class T>
struct ChunkColumns {
  const RunningState<T>& s;
  const ChunkSums<T>& sums;
  TokenPrefetcher& after;

  template <int V>
  FOVEA_INLINE void run(Index vector) const {
    for_row_blocks<kBlockRows<V>, true>(0, s.width,
                                        ChunkProducts<V, T>{s, sums, after, vector * kLanes<T>});
  }
};

/// Adds the products of the full open chunk to the sums of its segment.
/// \param after tokens to prefetch meanwhile
template <class T>
FOVEA_NOINLINE void add_chunk(const RunningState<T>& s, const ChunkSums<T>& sums,
                              TokenPrefetcher& after) {
  for_state_vectors<T>(s.value_row, ChunkColumns<T>{s, sums, after});
}

/// Adds n numbers to as many double words.
template <class T>
FOVEA_NOINLINE void add_to_words(T* high, T* low, const T* x, Index n) {
  for (Index i = 0; i < n; i += kLanes<T>) {
    Vec<T> sum = load(high + i);
    Vec<T> rest = load(low + i);
    add_to_double_word(sum, rest, load(x + i));
    store(high + i, sum);
    store(low + i, rest);
  }
}

/// Closes the full open chunk.
/// \param tokens the number of tokens with this chunk, a multiple of kLinearChunk
/// \param after tokens to prefetch meanwhile
template <class T>
FOVEA_NOINLINE void close_chunk(const RunningState<T>& s, Index tokens, TokenPrefetcher& after) {
  add_chunk(s, {s.local, s.local, s.high, s.read}, after);
  const Index at = s.width * s.value_row;
  add_to_words(s.high + at, s.low + at, s.last_run(), s.row);
  copy_elements(s.high + at, s.row, s.read + at);
  if (tokens % kStateSegment == 0) fold_segment(s);
}

/// Writes lanes[c, i] = rows[i, c] for i in [begin, end).
/// \param rows [kLinearChunk, row]
/// \param lanes [row, kLinearChunk]
template <class T>
FOVEA_NOINLINE void chunk_to_lanes(const T* rows, Index row, Index begin, Index end, T* lanes) {
  constexpr Index w = kLanes<T>;
  Index i = begin;
  while (i < end) {
    if (i % w != 0 || i + w > end) {
      for (Index c = 0; c < row; ++c) lanes[c * kLinearChunk + i] = rows[i * row + c];
      ++i;
      continue;
    }
    for (Index c = 0; c < row; c += w) {
      Vec<T> tile[w];
      FOVEA_UNROLL
      for (int r = 0; r < w; ++r) tile[r] = load(rows + (i + r) * row + c);
      transpose(tile);
      FOVEA_UNROLL
      for (int r = 0; r < w; ++r) store(lanes + (c + r) * kLinearChunk + i, tile[r]);
    }
    i += w;
  }
}

/// The number of tokens per chain of roundings in `run`.
inline constexpr Index kRunChain = 8;

/// Computes the sums of features up to each of the tokens [begin, end): chains of kRunChain
/// features, and a chain of their sums.
/// \param features [kLinearChunk, row]
/// \param run [kLinearChunk, row], with rows before `begin` given
template <class T>
FOVEA_NOINLINE void find_runs(const T* features, Index row, Index begin, Index end, T* run) {
  constexpr Index w = kLanes<T>;
  for (Index first = begin / kRunChain * kRunChain; first < end; first += kRunChain) {
    for (Index d = 0; d < row; d += w) {
      const Vec<T> before = first == 0 ? zero<T>() : load(run + (first - 1) * row + d);
      Vec<T> sum = zero<T>();
      for (Index i = first; i < smaller(first + kRunChain, end); ++i) {
        sum = sum + load(features + i * row + d);
        store(run + i * row + d, before + sum);
      }
    }
  }
}

/// Adds the features of tokens [begin, end) to the open chunk.
template <class T>
FOVEA_INLINE void append_features(const RunningState<T>& s, Index begin, Index end) {
  chunk_to_lanes(s.features, s.row, begin, end, s.lanes);
  find_runs(s.features, s.row, begin, end, s.run);
}

/// Writes to[i, c] = rows[i, c], with 0 from `width` on to the end of the padded row.
template <Storage S, class T>
FOVEA_INLINE void pack_padded_rows(const StoredMatrix<S>& rows, Index count, Index width, T* to) {
  const Index row = padded_row<T>(width);
  pack_rows(rows, count, width, to, row);
  const Index packed = padded_size(width, kLanes<T>);
  if (packed == row) return;
  for (Index i = 0; i < count; ++i) clear_elements(to + i * row + packed, row - packed);
}
