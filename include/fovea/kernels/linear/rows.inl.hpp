// SPDX-License-Identifier: MIT
/// \file
/// Rows of queries that read a state, for one head and one feature map: denominators, weights of
/// the keys of the open chunk, and outputs. The bits of a row depend only on its query and its
/// visible tokens.
///
/// The numerator of row i is one chain over the chunk's keys up to i, continued through
/// kFeatureChain features times rows of the state, plus chains of further features. The lanes are
/// value columns, and for weights keys.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/linear.hpp"
#include "fovea/kernels/linear/running_state.inl.hpp"
#include "fovea/simd/lane_sums.inl.hpp"
#endif

/// The number of steps of one chain of roundings over features.
inline constexpr Index kFeatureChain = 32;

/// 2^n: if the magnitude of a denominator is between 2^-n and 2^n, the row's features need no
/// scaling.
template <class T>
inline constexpr T kUsualDenominator = sizeof(T) == 4 ? T(0x1p60) : T(0x1p400);

/// 2^n: if the magnitude of a row's largest feature is between 2^-n and 2^n, the row is never
/// scaled.
template <class T>
inline constexpr T kUsualFeature = sizeof(T) == 4 ? T(0x1p40) : T(0x1p300);

/// The next rows of queries and outputs, to prefetch.
struct QueryPrefetcher {
  RowPrefetcher<0> q;
  RowPrefetcher<1> out;

  FOVEA_INLINE void prefetch(Index rows) {
    q.prefetch(rows);
    out.prefetch(rows);
  }
};

/// The rows of one head, and their inputs. Row r sees the first `first + r + 1` keys of the chunk,
/// and at most `keys`.
template <class T>
struct StateReader {
  Index width;
  Index row;                  // elements of a row of features: D padded
  Index value_row;            // Dv padded
  const T* state;             // [D, value_row]
  const T* normaliser;        // [row]
  const T* run = nullptr;     // [keys, row], added to the normaliser; or null
  const T* lanes = nullptr;   // [row, kLinearChunk] features of the chunk's keys
  const T* values = nullptr;  // [keys, value_row]
  Index keys = 0;
  Index first = 0;
  Index count = 0;            // number of rows, at most kLinearChunk
  T* features = nullptr;      // [count, row]
  T* weights = nullptr;       // [count, kLinearChunk]
  T* numerators = nullptr;    // [count, value_row]
  T* denominators = nullptr;  // [kLinearChunk]
  T* inverses = nullptr;      // [kLinearChunk] of the denominators; 0: divide instead
  T* scales = nullptr;        // [kLinearChunk] 1 if features are not scaled; null: not requested

  /// [count, Dv]: the output of all rows, multiplied by their inverses. Null: numerators are
  /// stored.
  T* out = nullptr;
  Index out_row = 0;
  QueryPrefetcher* ahead = nullptr;  // rows to prefetch; or null

  /// The last key of the chunk that row r sees.
  FOVEA_INLINE Index key(Index r) const { return smaller(first + r, keys - 1); }
};

template <class T>
FOVEA_INLINE Vec<T> absolute(Vec<T> x) {
  return from_bits<T>(bits(x) & set1_int<T>(~MathConstants<T>::kSignMask));
}

/// The products of a feature row with row r's normaliser, summed in the lanes of a cache line, then
/// halved down to one vector.
/// \tparam Magnitudes whether to sum magnitudes instead
template <bool Magnitudes, class T>
FOVEA_INLINE Vec<T> normaliser_products(const StateReader<T>& reader, Index r) {
  constexpr Index w = kLanes<T>;
  constexpr int vectors = kSumLanes<T> / w;
  const T* features = reader.features + r * reader.row;
  const T* run = reader.run == nullptr ? nullptr : reader.run + reader.key(r) * reader.row;
  Vec<T> sum[vectors];
  FOVEA_UNROLL
  for (int v = 0; v < vectors; ++v) sum[v] = zero<T>();
  for (Index d = 0; d < reader.row; d += vectors * w) {
    FOVEA_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const Index at = d + v * w;
      Vec<T> x = load(features + at);
      Vec<T> z = load(reader.normaliser + at);
      if (run != nullptr) z = z + load(run + at);
      if constexpr (Magnitudes) {
        x = absolute(x);
        z = absolute(z);
      }
      sum[v] = fma(x, z, sum[v]);
    }
  }
  return halves_added(sum);
}

/// The denominators of rows [first, first + lanes), and 0 beyond the last one.
/// \tparam Magnitudes whether to sum magnitudes instead
template <bool Magnitudes, class T>
FOVEA_INLINE Vec<T> denominators_of(const StateReader<T>& reader, Index first) {
  Vec<T> rows[kLanes<T>];
  FOVEA_UNROLL
  for (int i = 0; i < kLanes<T>; ++i) {
    rows[i] =
        first + i < reader.count ? normaliser_products<Magnitudes>(reader, first + i) : zero<T>();
  }
  return lane_sums(rows);
}

/// The lanes of usual magnitude; not NaN.
template <class T>
FOVEA_INLINE IntVec<T> is_usual(Vec<T> denominator) {
  constexpr T most = kUsualDenominator<T>;
  const Vec<T> size = absolute(denominator);
  return (size > set1(1 / most)) & (size < set1(most));
}

/// Multiplies a row of features by the power of two that scales its largest one near 1, if that one
/// is finite and far from 1. So features and products neither underflow nor overflow, and the
/// quotient is unchanged.
/// \return the power of two
template <class T>
FOVEA_NOINLINE T scale_features(T* features, Index width) {
  T largest = 0;
  for (Index d = 0; d < width; ++d) {
    const T size = features[d] < 0 ? -features[d] : features[d];
    if (size > largest) largest = size;
  }
  constexpr T usual = kUsualFeature<T>;
  if (!(largest > 0) || largest >= MathConstants<T>::kInfinity) return 1;
  if (largest >= 1 / usual && largest <= usual) return 1;
  constexpr T up = 4, down = T(0.25);
  T factor = 1;
  // A power of four may exceed the range of T if `largest` is subnormal.
  while (largest * factor < down && factor < 1 / MathConstants<T>::kSmallestNormal) factor *= up;
  while (largest * factor > up) factor *= down;
  for (Index d = 0; d < width; ++d) features[d] *= factor;
  return factor;
}

/// sign(den) max(|den|, least), where the sign of 0 is +; NaN stays NaN.
template <class T>
FOVEA_INLINE Vec<T> with_floor(Vec<T> denominator, Vec<T> least) {
  const Vec<T> size = absolute(denominator);
  const Vec<T> floored = select(size < least, least, size);
  return select(denominator < zero<T>(), zero<T>() - floored, floored);
}

/// Computes the denominators of all rows and their inverses, and scales features if needed.
/// \returns whether every row has an inverse
template <class T>
FOVEA_NOINLINE bool find_denominators(const StateReader<T>& reader, DenominatorPolicy policy,
                                      T floor) {
  constexpr Index w = kLanes<T>;
  bool all = true;
  for (Index first = 0; first < reader.count; first += w) {
    Vec<T> denominator = denominators_of<false>(reader, first);
    const IntVec<T> within =
        lane_index<T>() < set1_int<T>(static_cast<Int<T>>(reader.count - first));
    if (any(within & ~is_usual(denominator))) {
      alignas(kVecBytes) Int<T> usual[w];
      store_int<T>(usual, is_usual(denominator));
      for (Index i = 0; i < smaller(w, reader.count - first); ++i) {
        if (usual[i] != 0) continue;
        const T scale = scale_features(reader.features + (first + i) * reader.row, reader.width);
        if (reader.scales != nullptr) reader.scales[first + i] = scale;
      }
      denominator = denominators_of<false>(reader, first);
    }
    if (policy == DenominatorPolicy::signed_floor) {
      denominator = with_floor(denominator, set1(floor) * denominators_of<true>(reader, first));
    }
    const Vec<T> inverse = set1(T(1)) / denominator;
    store(reader.denominators + first, denominator);
    store(reader.inverses + first, select(is_usual(denominator), inverse, zero<T>()));
    all = all && !any(within & ~is_usual(denominator));
  }
  return all;
}

/// Computes weights[r, j] = <features of r, key j> for the V vectors of keys from `keys` on. Lanes
/// beyond a row's last key are never read.
template <int V, class T>
struct ChunkWeights {
  const StateReader<T>& reader;
  Index keys;

  template <int R>
  FOVEA_INLINE void run(Index r) const {
    T* weights = reader.weights + r * kLinearChunk + keys;
    RegisterBlock<R, V, T> sum;
    sum.clear();
    sum.template multiply_add_chains<kFeatureChain>(reader.features + r * reader.row, reader.row,
                                                    reader.lanes + keys, kLinearChunk, reader.width,
                                                    weights, kLinearChunk);
    sum.store_to(weights, kLinearChunk);
  }
};

/// Processes keys two vectors at a time; rows without keys in the second vector use only the first.
template <class T>
FOVEA_NOINLINE void find_weights(const StateReader<T>& reader) {
  constexpr Index w = kLanes<T>;
  const Index seen = reader.key(reader.count - 1) + 1;
  for (Index keys = 0; keys < seen; keys += 2 * w) {
    const Index one = clamped(keys - reader.first, 0, reader.count);
    const Index two =
        keys + w < reader.keys ? clamped(keys + w - reader.first, 0, reader.count) : reader.count;
    for_row_blocks<kBlockRows<1>>(one, two, ChunkWeights<1, T>{reader, keys});
    for_row_blocks<kBlockRows<2>>(two, reader.count, ChunkWeights<2, T>{reader, keys});
  }
}

/// Computes the numerators of R rows in V vectors of columns.
/// \pre of several rows, each sees one more key of the chunk than the previous one, or none sees
/// any
template <int V, class T>
struct ReadBlock {
  const StateReader<T>& reader;
  Index c;

  template <int R>
  FOVEA_INLINE void run(Index r) const {
    T* numerators = reader.numerators + r * reader.value_row + c;
    RegisterBlock<R, V, T> sum;
    sum.clear();
    if (reader.keys > 0) add_chunk(sum, r);
    // The first features continue the chunk's chains.
    sum.template multiply_add_chains<kFeatureChain>(reader.features + r * reader.row, reader.row,
                                                    reader.state + c, reader.value_row,
                                                    reader.width, numerators, reader.value_row);
    if (reader.out == nullptr) {
      sum.store_to(numerators, reader.value_row);
    } else {
      divide(sum, r);
    }
    if (reader.ahead != nullptr) reader.ahead->prefetch(R);
  }

  /// Adds row r's visible keys of the chunk, then each row's further keys.
  template <int R>
  FOVEA_INLINE void add_chunk(RegisterBlock<R, V, T>& sum, Index r) const {
    const T* weights = reader.weights + r * kLinearChunk;
    const Index seen = reader.key(r) + 1;
    sum.multiply_add(weights, kLinearChunk, 1, reader.values + c, reader.value_row, seen);
    FOVEA_UNROLL
    for (int t = 1; t < R; ++t) {
      const Index j = seen + t - 1;
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) {
        const Vec<T> x = load(reader.values + j * reader.value_row + c + v * kLanes<T>);
        FOVEA_UNROLL
        for (int i = t; i < R; ++i) {
          sum.at[i][v] = fma(set1(weights[i * kLinearChunk + j]), x, sum.at[i][v]);
        }
      }
    }
  }

  template <int R>
  FOVEA_INLINE void divide(const RegisterBlock<R, V, T>& sum, Index r) const {
    const T* const inverses = reader.inverses + r;
    const Index out_row = reader.out_row;
    T* const out = reader.out + r * out_row + c;
    FOVEA_UNROLL
    for (int i = 0; i < R; ++i) {
      const Vec<T> inverse = set1(inverses[i]);
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) {
        store(out + i * out_row + v * kLanes<T>, sum.at[i][v] * inverse);
      }
    }
  }
};

template <class T>
struct ReadColumns {
  const StateReader<T>& reader;

  template <int V>
  FOVEA_INLINE void run(Index vector) const {
    const Index c = vector * kLanes<T>;
    const Index stepping =
        reader.keys == 0 ? reader.count : clamped(reader.keys - reader.first, 0, reader.count);
    for_row_blocks<kBlockRows<V>, true>(0, stepping, ReadBlock<V, T>{reader, c});
    for_row_blocks<1>(stepping, reader.count, ReadBlock<V, T>{reader, c});
  }
};

template <class T>
FOVEA_NOINLINE void find_numerators(const StateReader<T>& reader) {
  for_state_vectors<T>(reader.value_row, ReadColumns<T>{reader});
}
