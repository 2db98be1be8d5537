// SPDX-License-Identifier: MIT
/// \file
/// The delta rule in chunks (delta_rule.hpp). With B = beta k' of the chunk's tokens and S the
/// state before the chunk,
///
///     e_t   = v_t - S^T k'_t - sum_{s < t} (k'_t . B_s) e_s
///     far_i = S^T q'_i + sum_{s <= i} (q'_i . B_s) e_s
///
/// and B^T E is added to S, with compensation. Value columns are in the lanes; for k' . B and q' .
/// B, tokens. Each element is one fixed sequence of operations, for any division of rows into calls
/// and blocks. Cost for each token, with one query head: 6 D Dv flops and 2 kDeltaChunk (D + Dv).

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/delta_rule.hpp"
#include "fovea/simd/register_block.inl.hpp"
#include "fovea/simd/stored_rows.inl.hpp"
#endif

/// A number of elements rounded up to whole vectors.
template <class T>
constexpr Index in_whole_vectors(Index n) {
  return padded_size(n, kLanes<T>);
}

/// The tokens of a chunk visible to a block's rows: those before each row's own (`token`),
/// including its own (`causal`), or the same number for all rows (`last`).
enum class DeltaRowKind : std::uint8_t { token, causal, last };

/// The rows of the next chunk, prefetched while this one is computed.
struct DeltaPrefetcher {
  RowPrefetcher<0> x;       // rows of q or k
  RowPrefetcher<0> values;  // values of tokens
  RowPrefetcher<1> out;     // output rows of queries

  FOVEA_INLINE void prefetch(Index rows) {
    x.prefetch(rows);
    values.prefetch(rows);
    out.prefetch(rows);
  }
};

/// Computes rows of errors or of far.
template <class T>
struct DeltaRows {
  const T* x;  // [rows, x_row] q', or -k'
  Index x_row;
  Index width;
  const T* weights;  // [rows, kDeltaChunk] x . B
  const T* state;    // [D, row]
  const T* errors;   // [kDeltaChunk, row]
  Index row;
  const T* values;  // [rows, Dv], for tokens
  Index values_row;
  T* out;  // [rows, Dv]; for tokens it is their rows of errors
  Index out_row;
  DeltaRowKind kind;
  Index seen;  // tokens of the chunk that row 0 sees
  DeltaPrefetcher* ahead;
};

/// Computes V vectors of columns of these rows.
template <int V, class T>
struct DeltaColumns {
  const DeltaRows<T>& p;
  Index column;

  template <int R>
  FOVEA_INLINE void run(Index first) const {
    constexpr Index part = V * kLanes<T>;
    const Index common = p.kind == DeltaRowKind::last ? p.seen : p.seen + first;
    const T* const weights = p.weights + first * kDeltaChunk;
    p.ahead->prefetch(R);
    RegisterBlock<R, V, T> sum;
    sum.clear();
    alignas(kVecBytes) T before[R * part];
    sum.template multiply_add_chains<kReductionBlock>(
        p.x + first * p.x_row, p.x_row, p.state + column, p.row, p.width, before, part);
    if (p.kind == DeltaRowKind::token) {
      sum.add_from(p.values + first * p.values_row + column, p.values_row);
    }
    sum.multiply_add(weights, kDeltaChunk, 1, p.errors + column, p.row, common);
    if constexpr (R > 1) {
      if (p.kind != DeltaRowKind::last) add_own(sum, weights + common, common);
    }
    sum.store_to(p.out + first * p.out_row + column, p.out_row);
  }

  /// Adds each row's tokens beyond [0, common), which all rows see. The errors of `token` rows are
  /// those being computed.
  template <int R>
  FOVEA_INLINE void add_own(RegisterBlock<R, V, T>& sum, const T* weights, Index common) const {
    FOVEA_UNROLL
    for (int s = 0; s + 1 < R; ++s) {
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) {
        const T* const error = p.errors + column + (common + s) * p.row + v * kLanes<T>;
        const Vec<T> e = p.kind == DeltaRowKind::token ? sum.at[s][v] : load(error);
        FOVEA_UNROLL
        for (int r = s + 1; r < R; ++r) {
          sum.at[r][v] = fma(set1(weights[r * kDeltaChunk + s]), e, sum.at[r][v]);
        }
      }
    }
  }
};

/// Computes all rows and columns.
/// \param columns a multiple of the lanes
template <class T>
FOVEA_NOINLINE void delta_rows(const DeltaRows<T>& p, Index rows, Index columns) {
  for_register_blocks<T>(rows, columns, [&]<int V>(Index column) {
    return DeltaColumns<V, T>{p, column};
  });
}

/// Computes weights[r, s] = x_r . B_s for some tokens s, V vectors of them.
template <int V, class T>
struct DeltaWeights {
  const T* x;  // [rows, x_row]
  Index x_row;
  Index width;
  const T* keys_t;  // [D, kDeltaChunk]
  T* weights;       // [rows, kDeltaChunk]

  template <int R>
  FOVEA_INLINE void run(Index r) const {
    RegisterBlock<R, V, T> sum;
    score_chains(sum, x + r * x_row, x_row, keys_t, width, weights + r * kDeltaChunk, kDeltaChunk);
  }
};

/// Computes the weights of rows, at least for their visible tokens: row r sees `seen` + r tokens,
/// or fewer.
template <class T>
FOVEA_NOINLINE void delta_weights(const T* x, Index x_row, Index width, const T* keys_t,
                                  Index count, Index seen, T* weights) {
  constexpr Index w = kLanes<T>;
  for (Index token = 0; token < kDeltaChunk; token += 2 * w) {
    const Index one = larger(token + 1 - seen, 0);  // first row that sees the first vector
    const Index two = smaller(larger(token + w + 1 - seen, 0), count);
    if (one >= count) return;
    for_row_blocks<kBlockRows<1>>(
        one, two, DeltaWeights<1, T>{x, x_row, width, keys_t + token, weights + token});
    for_row_blocks<kBlockRows<2>>(
        two, count, DeltaWeights<2, T>{x, x_row, width, keys_t + token, weights + token});
  }
}

/// A whole chunk to add to the state.
template <class T>
struct DeltaChunk {
  const T* keys;  // [kDeltaChunk, keys_row] B
  Index keys_row;
  const T* errors;  // [kDeltaChunk, row]
  const T* sum;     // [D, row]
  T* to;            // the sum with the chunk; it may be `sum`
  T* lost;          // [D, row] its rounding error
  Index row;
};

/// Adds B^T E to S for V vectors of columns, with compensation (Kahan 1965).
template <int V, class T>
struct DeltaChunkColumns {
  const DeltaChunk<T>& p;
  Index column;

  template <int R>
  FOVEA_INLINE void run(Index d) const {
    RegisterBlock<R, V, T> more;
    more.clear();
    more.multiply_add(p.keys + d, 1, p.keys_row, p.errors + column, p.row, kDeltaChunk);
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) {
        const Index at = (d + r) * p.row + column + v * kLanes<T>;
        const Vec<T> before = load(p.sum + at);
        const Vec<T> y = more.at[r][v] + load(p.lost + at);
        const Vec<T> after = before + y;
        store(p.to + at, after);
        store(p.lost + at, y - (after - before));
      }
    }
  }
};

/// Adds B^T E to S.
/// \param columns a multiple of the lanes
template <class T>
FOVEA_NOINLINE void add_chunk(const DeltaChunk<T>& p, Index width, Index columns) {
  for_register_blocks<T>(width, columns, [&]<int V>(Index column) {
    return DeltaChunkColumns<V, T>{p, column};
  });
}
