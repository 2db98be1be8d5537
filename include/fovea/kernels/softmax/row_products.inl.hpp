// SPDX-License-Identifier: MIT
/// \file
/// The products of few query rows with keys and values. Scores have keys in the lanes; those of few
/// rows are found by simd/row_dots.inl.hpp, those of more rows here. Sums over the keys of a
/// reduction block, of weights and weighted values, have Dv in the lanes. Each number is the same
/// sequence of operations as in tile.inl.hpp, where queries are in the lanes: an invisible key has
/// weight 0 there, too. Cost: 2 (D + Dv) flops for each pair.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/block.hpp"
#include "fovea/simd/pairs.inl.hpp"
#include "fovea/simd/rows_to_lanes.inl.hpp"
#endif

/// The prefetch distance of keys and values, in keys.
inline constexpr Index kKeysAhead = 64;
/// A single row's keys are prefetched by at most so many keys and so many bytes to the first-level
/// cache, if a batch is that short. On Zen 4, keys are read from memory 1.4 times as fast so.
inline constexpr Index kRowKeysAhead = 32;
inline constexpr Index kRowBytesAhead = 8192;
/// The most columns of values that the hardware prefetcher follows without help.
inline constexpr Index kStreamedColumns = 128;

/// The register blocks of few rows: four rows, or one. The baseline has only the latter.
inline constexpr int kRowsOfBlock = kIsCompact ? 1 : (kVecRegisters == 32 ? 4 : 2);
inline constexpr int kRowVectors = 4;

/// Calls `functor.template run<R>(first)` for blocks of kRowsOfBlock rows, then for single ones.
template <class Functor>
FOVEA_INLINE void for_few_rows(Index rows, const Functor& functor) {
  Index r = 0;
  if constexpr (kRowsOfBlock > 1) {
    for (; r + kRowsOfBlock <= rows; r += kRowsOfBlock) functor.template run<kRowsOfBlock>(r);
  }
  for (; r < rows; ++r) functor.template run<1>(r);
}

/// Computes the scores of rows of Q and kRowVectors vectors of transposed keys.
template <class X, class T>
struct KeyScores {
  static constexpr Index kRow = kRowVectors * kLanes<T>;

  const X* q;  // [rows, q_row], scaled, or pairs
  Index q_row;
  const X* k;  // [steps, kRow]
  Index steps;
  T factor;   // of products of pairs
  T* scores;  // [rows, kKeyTile]

  template <int R>
  FOVEA_INLINE void run(Index row) const {
    RegisterBlock<R, kRowVectors, T> s;
    s.clear();
    T* const to = scores + row * kKeyTile;
    s.template multiply_add_chains<kReductionBlock / kTerms<X>>(q + row * q_row, q_row, k, kRow,
                                                                steps, to, kKeyTile);
    s.template scale_products<X>(factor);
    s.store_to(to, kKeyTile);
  }
};

/// Computes a * b + c for single numbers, as `fma` does for registers.
template <class T>
FOVEA_INLINE T fma_one(T a, T b, T c) {
  return fma(set1(a), set1(b), set1(c)).raw[0];
}

/// sum[r] = sum[r] rescale[r] + sum_j weights[r, j]. The rows of a block are added in parallel,
/// since one would be latency-bound.
template <class T>
struct WeightSums {
  const T* weights;  // [rows, kKeyTile]
  Index keys;
  const T* rescale;  // [rows]
  T* sum;            // [rows]

  template <int R>
  FOVEA_INLINE void run(Index row) const {
    const T* from = weights + row * kKeyTile;
    T chain[R] = {};
    for (Index j = 0; j < keys; ++j) {
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) chain[r] += from[r * kKeyTile + j];
    }
    for (int r = 0; r < R; ++r) sum[row + r] = fma_one(sum[row + r], rescale[row + r], chain[r]);
  }
};

/// The pairs of weights of a reduction block.
inline constexpr Index kWeightPairs = kReductionBlock / 2;

/// Rounds the weights of some keys of a reduction block to bfloat16. Where a pair begins before the
/// keys or ends after them, its other weight is 0.
/// \param weights [rows, kKeyTile]   \param to [rows, kWeightPairs]
/// \param odd 1 if the first key is the second of a pair, else 0
template <class X, class T>
FOVEA_NOINLINE void round_weights(const T* weights, Index rows, Index odd, Index keys, X* to) {
  for (Index r = 0; r < rows; ++r) {
    alignas(kVecBytes) T padded[kReductionBlock] = {};
    for (Index j = 0; j < keys; ++j) padded[odd + j] = weights[r * kKeyTile + j];
    for (Index j = 0; j < kReductionBlock; j += 2 * kLanes<T>) {
      store_int<T>(to + r * kWeightPairs + j / 2,
                   rounded_neighbours(load(padded + j), load(padded + j + kLanes<T>)));
    }
  }
}

/// acc[r] = acc[r] rescale[r] + sum_j V[j] weights[r, j] for V vectors of columns; a single one may
/// be partial or strided.
template <int V, Storage S, class T>
struct WeightedValues {
  using Operand = OperandOf<S, T>;
  static constexpr Index kKeys = kTerms<Operand>;  // of a step
  static constexpr Index kWeightRow = kKeys == 1 ? kKeyTile : kWeightPairs;

  StoredMatrix<S> v;  // [keys, Dv]
  Index column;       // the first of these columns
  Index width;        // Dv
  Index odd;          // 1 if the first key is the second of a pair, else 0
  Index keys;
  Index ahead;             // prefetch distance, in keys; 0: none
  const Operand* weights;  // [rows, kWeightRow]
  const T* rescale;        // [rows]
  T* acc;                  // [rows, acc_row]
  Index acc_row;

  template <int R>
  FOVEA_INLINE void run(Index row) const {
    RegisterBlock<R, V, T> sum;
    sum.clear();
    const Operand* weight = weights + row * kWeightRow;
    FOVEA_UNROLL_BY(2)
    for (Index j = -odd; j < keys; j += kKeys, ++weight) {
      if (ahead > 0) {
        FOVEA_UNROLL
        for (Index key = 0; key < kKeys; ++key) prefetch(j + key + ahead);
      }
      decltype(load_operand(weight)) value[V];
      load_values(j, value);
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) {
        const auto scalar = set1_operand(weight[r * kWeightRow]);
        FOVEA_UNROLL
        for (int x = 0; x < V; ++x) sum.at[r][x] = add_product(scalar, value[x], sum.at[r][x]);
      }
    }
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      if constexpr (kIsInPairs) order_columns(sum.at[r]);
      FOVEA_UNROLL
      for (int x = 0; x < V; ++x) {
        T* p = acc + (row + r) * acc_row + column + x * kLanes<T>;
        store(p, fma(load(p), set1(rescale[row + r]), sum.at[r][x]));
      }
    }
  }

 private:
  /// Whether two vectors are loaded as one register of pairs, whose first and second numbers are
  /// split without shuffles: of two sums, one has the even and one the odd columns.
  static constexpr bool kIsInPairs = S == Storage::bfloat16 && V % 2 == 0;

  /// The pairs of keys j and j + 1. A missing one has weight 0, and is not read.
  FOVEA_INLINE void load_values(Index j, IntVec<T> (&value)[V]) const {
    if constexpr (V == 1) {
      value[0] = load_row_pairs(v, j, keys, column, width);
      return;
    }
    const IntVec<T> low = set1_int<T>(0xffff);
    FOVEA_UNROLL
    for (int x = 0; x + 1 < V; x += 2) {
      const IntVec<T> first = load_columns_of(j, x), second = load_columns_of(j + 1, x);
      value[x] = (first & low) | (second << 16);
      value[x + 1] = ((first >> 16) & low) | (second & ~low);
    }
  }

  /// Two vectors of columns of a key.
  FOVEA_INLINE IntVec<T> load_columns_of(Index j, int x) const {
    if (j < 0 || j >= keys) return set1_int<T>(0);
    return load_short_pairs(short_element(v.data, j * v.row + column + x * kLanes<T>));
  }

  FOVEA_INLINE void load_values(Index j, Vec<T> (&value)[V]) const {
    const Index row = j * v.row;
    if constexpr (V == 1) {
      value[0] = load_columns<S, T>(v.data, row, v.column, column, width);
    } else if constexpr (kIsInPairs) {
      FOVEA_UNROLL
      for (int x = 0; x < V; x += 2) {
        const void* const pairs = short_element(v.data, row + column + x * kLanes<T>);
        split_bfloat16(load_short_pairs(pairs), value[x], value[x + 1]);
      }
    } else {
      FOVEA_UNROLL
      for (int x = 0; x < V; ++x) {
        value[x] = load_stored<S, T>(v.data, row + column + x * kLanes<T>);
      }
    }
  }

  static FOVEA_INLINE void order_columns(Vec<T> (&sums)[V]) {
    FOVEA_UNROLL
    for (int x = 0; x < V; x += 2) {
      const Vec<T> even = sums[x];
      sums[x] = interleave<false>(even, sums[x + 1]);
      sums[x + 1] = interleave<true>(even, sums[x + 1]);
    }
  }

  FOVEA_INLINE void prefetch(Index j) const {
    constexpr Index bytes = kStoredBytes<S, T>;
    FOVEA_UNROLL
    for (Index x = 0; x < V * kLanes<T> * bytes; x += 64) {
      __builtin_prefetch(static_cast<const char*>(v.data) + (j * v.row + column) * bytes + x, 0, 2);
    }
  }
};
