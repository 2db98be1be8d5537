// SPDX-License-Identifier: MIT
/// \file
/// The steps of one tile of the softmax kernel: scores, masking and maximum; then, for each
/// reduction block of its keys, weights and values. A tile is up to kKeyTile keys against V vectors
/// of queries; its matrices are [keys, V * lanes].

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/block.hpp"
#include "fovea/kernels/softmax/visible_keys.inl.hpp"
#include "fovea/simd/register_block.inl.hpp"
#include "fovea/simd/softmax_weight.inl.hpp"
#include "fovea/simd/stored_rows.inl.hpp"
#endif

/// Computes the scores of R keys, rows of K times V of the W vectors of transposed queries, and the
/// running maximum.
template <int V, int W, class X, class T, class Prefetcher>
struct ScoreRows {
  static constexpr Index kRow = W * kLanes<T>;

  const X* k;  // [keys, steps]
  Index k_row;
  const X* q;  // [steps, kRow]
  Index steps;
  T factor;
  T* scores;  // [keys, kRow]
  Vec<T> (&most)[V];
  Prefetcher& ahead;

  template <int R>
  FOVEA_INLINE void run(Index j) const {
    ahead.prefetch();
    RegisterBlock<R, V, T> s;
    score_chains(s, k + j * k_row, k_row, q, steps, scores + j * kRow, kRow, factor);
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) most[v] = maximum(most[v], s.at[r][v]);
    }
  }
};

/// Writes scores[j] = K[j] Q for j in [0, keys), and to `most` the largest of each query.
/// \param factor as that of score_chains  \param ahead prefetches at intervals
template <int V, class X, class T, class Prefetcher>
FOVEA_NOINLINE void score_tile(const X* k, Index k_row, Index keys, const X* q, Index steps,
                               T factor, T* scores, T* most, Prefetcher& ahead) {
  Vec<T> m[V];
  FOVEA_UNROLL
  for (int v = 0; v < V; ++v) m[v] = set1(kMinusInfinity<T>);
  for_row_blocks<kBlockRows<V>>(
      0, keys, ScoreRows<V, V, X, T, Prefetcher>{k, k_row, q, steps, factor, scores, m, ahead});
  FOVEA_UNROLL
  for (int v = 0; v < V; ++v) store(most + v * kLanes<T>, m[v]);
}

/// The same for keys [begin, end) and one of V vectors; `most` becomes the maximum of the scores
/// and itself.
/// \param q, scores, most those of the vector's first lane
template <int V, class X, class T, class Prefetcher>
FOVEA_NOINLINE void score_vector(const X* k, Index k_row, Index begin, Index end, const X* q,
                                 Index steps, T factor, T* scores, T* most, Prefetcher& ahead) {
  constexpr int rows = smaller(8, kAccumulators);  // as many pointers as registers
  Vec<T> m[1] = {load(most)};
  for_row_blocks<rows>(
      begin, end, ScoreRows<1, V, X, T, Prefetcher>{k, k_row, q, steps, factor, scores, m, ahead});
  store(most, m[0]);
}

/// The same for each vector's visible keys.
template <int V, class X, class T, class Prefetcher>
FOVEA_INLINE void score_keys(const X* k, Index k_row, const VectorKeys<V>& keys, const X* q,
                             Index steps, T factor, T* scores, T* most, Prefetcher& ahead) {
  const Index wide = keys.wide_begin;
  score_tile<V>(k + wide * k_row, k_row, keys.wide_end - wide, q, steps, factor,
                scores + wide * V * kLanes<T>, most, ahead);
  for (int v = 0; v < V; ++v) {
    const Index lane = v * kLanes<T>;
    score_vector<V>(k, k_row, keys.begin[v], keys.before_end(v), q + lane, steps, factor,
                    scores + lane, most + lane, ahead);
    score_vector<V>(k, k_row, keys.behind_begin(v), keys.end[v], q + lane, steps, factor,
                    scores + lane, most + lane, ahead);
  }
}

/// The largest scores of keys [begin, end) of one of V vectors. There are several chains, since one
/// would be latency-bound.
template <int V, class T>
FOVEA_INLINE Vec<T> largest_of(const T* scores, Index begin, Index end) {
  constexpr Index chains = 4;
  constexpr Index row = V * kLanes<T>;
  Vec<T> m[chains];
  FOVEA_UNROLL
  for (Index n = 0; n < chains; ++n) m[n] = set1(kMinusInfinity<T>);
  Index j = begin;
  for (; j + chains <= end; j += chains) {
    FOVEA_UNROLL
    for (Index n = 0; n < chains; ++n) m[n] = maximum(m[n], load(scores + (j + n) * row));
  }
  for (; j < end; ++j) m[0] = maximum(m[0], load(scores + j * row));
  return maximum(maximum(m[0], m[1]), maximum(m[2], m[3]));
}

/// Masks the invisible pairs in the scores of one of V vectors, and writes the largest remaining
/// scores to `most`.
/// \param lower, upper, scores, most those of the vector's first lane
/// \param seen which keys its lanes see
template <int V, class T>
FOVEA_NOINLINE void mask_vector(const Int<T>* lower, const Int<T>* upper, const VisibleKeys& seen,
                                T* scores, T* most) {
  constexpr Index row = V * kLanes<T>;
  const IntVec<T> low = load_int<T>(lower);
  const IntVec<T> high = load_int<T>(upper);
  Vec<T> m = set1(kMinusInfinity<T>);
  for (Index j = seen.begin; j < seen.end;) {
    for (; j < seen.full_begin || (seen.full_end <= j && j < seen.end); ++j) {
      const IntVec<T> key = set1_int<T>(static_cast<Int<T>>(j));
      const Vec<T> s =
          select(~(key < low) & (key < high), load(scores + j * row), set1(kMinusInfinity<T>));
      store(scores + j * row, s);
      m = maximum(m, s);
    }
    m = maximum(m, largest_of<V, T>(scores, j, seen.full_end));
    j = larger(j, seen.full_end);
  }
  store(most, m);
}

/// Updates the running maximum by a tile's scores, and computes the factors that rescale earlier
/// sums.
/// \param most [V * lanes] the maximum of this tile
/// \param max_logit [V * lanes] the running maximum
template <int V, class T>
FOVEA_INLINE void raise_maximum(const T* most, T* max_logit, T* rescale) {
  FOVEA_UNROLL
  for (int v = 0; v < V; ++v) {
    const Index lane = v * kLanes<T>;
    const Vec<T> before = load(max_logit + lane);
    const Vec<T> now = maximum(before, load(most + lane));
    store(max_logit + lane, now);
    store(rescale + lane, softmax_weight(before - finite_shift(now)));
  }
}

/// Turns the scores of one of V vectors into weights, in place, for the keys of one reduction
/// block; sum = sum rescale + their weights.
/// \param scores those of the vector's first lane
/// \param max_logit, sum, rescale [lanes]
/// \param lift exponent bias of the weights; 0 if not kLifted
template <int V, bool kLifted, class T>
FOVEA_NOINLINE void weigh_chain(T* scores, Index keys, const T* max_logit, const T* rescale,
                                int lift, T* sum) {
  const Vec<T> shift = finite_shift(load(max_logit));
  Vec<T> chain = zero<T>();
  FOVEA_UNROLL_BY(Arch::kWeightSteps)
  for (Index j = 0; j < keys; ++j) {
    T* p = scores + j * V * kLanes<T>;
    const Vec<T> below = load(p) - shift;
    const Vec<T> weight = kLifted ? lifted_weight(below, lift) : softmax_weight(below);
    store(p, weight);
    chain = chain + weight;
  }
  store(sum, fma(load(sum), load(rescale), chain));
}

template <int V, class T>
FOVEA_INLINE void weight_chain(T* scores, Index keys, const T* max_logit, const T* rescale,
                               int lift, T* sum) {
  if (lift == 0) {
    weigh_chain<V, false>(scores, keys, max_logit, rescale, 0, sum);
  } else {
    weigh_chain<V, true>(scores, keys, max_logit, rescale, lift, sum);
  }
}

/// The weighted sums of R value columns; keys may be pairs of keys.
template <int V, class X, class T>
struct ValueColumns {
  static constexpr Index kRow = V * kLanes<T>;

  const X* v;  // [keys, Dv]
  Index v_row;
  const VectorKeys<V>& keys;
  const X* weights;  // [keys, kRow]
  const T* rescale;  // [kRow]; null: acc is still unset
  T* acc;            // [Dv, kRow]

  template <int R>
  FOVEA_INLINE void run(Index c) const {
    RegisterBlock<R, V, T> sum;
    sum.clear();
    add_edges<0>(sum, c, true);
    const Index wide = keys.wide_begin;
    sum.multiply_add(v + c + wide * v_row, 1, v_row, weights + wide * kRow, kRow,
                     keys.wide_end - wide);
    add_edges<0>(sum, c, false);
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      FOVEA_UNROLL
      for (int i = 0; i < V; ++i) {
        T* p = acc + (c + r) * kRow + i * kLanes<T>;
        const Index lane = i * kLanes<T>;
        store(p, rescale == nullptr ? zero<T>() + sum.at[r][i]
                                    : fma(load(p), load(rescale + lane), sum.at[r][i]));
      }
    }
  }

  /// Adds the keys before or after those visible to all vectors, for vector N and later ones.
  template <int N, int R>
  FOVEA_INLINE void add_edges(RegisterBlock<R, V, T>& sum, Index c, bool before) const {
    const Index begin = before ? keys.begin[N] : keys.behind_begin(N);
    const Index end = before ? keys.before_end(N) : keys.end[N];
    sum.template multiply_add_one<N>(v + c + begin * v_row, 1, v_row, weights + begin * kRow, kRow,
                                     end - begin);
    if constexpr (N + 1 < V) add_edges<N + 1>(sum, c, before);
  }
};

/// Computes acc[c] = acc[c] rescale + sum_j V[j, c] weights[j] over each vector's visible keys.
/// Invisible pairs among these have weight 0.
/// \param rescale null: acc is taken as 0
template <int V, class X, class T>
FOVEA_NOINLINE void value_chain(const X* v, Index v_row, const VectorKeys<V>& keys,
                                Index value_width, const X* weights, const T* rescale, T* acc) {
  for_row_blocks<kBlockRows<V>>(0, value_width,
                                ValueColumns<V, X, T>{v, v_row, keys, weights, rescale, acc});
}

/// The same bits, skipping invisible pairs, since their weight 0 does not suppress NaN or infinity
/// in V.
/// \param visible [keys, V * lanes] lane masks
template <int V, class T>
FOVEA_NOINLINE void value_chain_selected(const T* v, Index v_row, Index keys, Index value_width,
                                         const Int<T>* visible, const T* weights, const T* rescale,
                                         T* acc) {
  for (Index c = 0; c < value_width; ++c) {
    FOVEA_UNROLL
    for (int i = 0; i < V; ++i) {
      Vec<T> sum = zero<T>();
      for (Index j = 0; j < keys; ++j) {
        const Index at = (j * V + i) * kLanes<T>;
        const Vec<T> more = fma(set1(v[j * v_row + c]), load(weights + at), sum);
        sum = select(load_int<T>(visible + at), more, sum);
      }
      T* p = acc + c * V * kLanes<T> + i * kLanes<T>;
      store(p, fma(load(p), load(rescale + i * kLanes<T>), sum));
    }
  }
}

/// Whether rows [0, rows) at unit columns are finite.
template <class T>
FOVEA_NOINLINE bool all_finite(const T* m, Index row, Index rows, Index width) {
  constexpr Index chains = 4;  // in parallel: one would be latency-bound
  Vec<T> poison[chains] = {zero<T>(), zero<T>(), zero<T>(), zero<T>()};
  for (Index i = 0; i < rows; ++i) {
    Index c = 0;
    for (; c + chains * kLanes<T> <= width; c += chains * kLanes<T>) {
      FOVEA_UNROLL
      for (Index n = 0; n < chains; ++n) {
        const Vec<T> x = load(m + i * row + c + n * kLanes<T>);
        poison[n] = poison[n] + (x - x);
      }
    }
    for (; c < width; c += kLanes<T>) {
      const Vec<T> x = load_columns(m + i * row, 1, c, width);
      poison[0] = poison[0] + (x - x);
    }
  }
  const Vec<T> all = (poison[0] + poison[1]) + (poison[2] + poison[3]);
  return !any<T>(~(all == zero<T>()));
}
