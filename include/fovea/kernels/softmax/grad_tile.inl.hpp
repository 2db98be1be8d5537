// SPDX-License-Identifier: MIT
/// \file
/// The steps of one tile of the backward pass: the weights and their gradients from scores, and the
/// products that sum over queries. Tiles of scores are [keys, V * lanes], as in tile.inl.hpp.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/grad_pairs.inl.hpp"
#include "fovea/simd/register_block.inl.hpp"
#include "fovea/simd/softmax_weight.inl.hpp"
#endif

/// The scalar rows of a register block whose lanes are queries: a power of two, since there are few
/// keys between two boundaries.
template <int V>
inline constexpr int kGradRows = kAccumulators / V >= 8   ? 8
                                 : kAccumulators / V >= 4 ? 4
                                                          : 2;

/// Computes the scores of R keys for V vectors of a group, in the order of score_tile.
template <int V, class T>
struct LaneScores {
  const T* k;  // [keys, D]
  Index k_row;
  const T* q;  // [D, kGradGroup]
  Index width;
  T* scores;  // [keys, kGradGroup]

  template <int R>
  FOVEA_INLINE void run(Index j) const {
    constexpr Index group = kGradGroup<T>;
    RegisterBlock<R, V, T> s;
    score_chains(s, k + j * k_row, k_row, q, width, scores + j * group, group);
  }
};

/// Computes the scores of keys [begin, end) for `vectors` <= V vectors of a group.
template <int V, class T>
FOVEA_INLINE void score_vectors(Index vectors, Index begin, Index end,
                                const LaneScores<V, T>& scores) {
  if constexpr (V > 1) {
    if (vectors < V) {
      return score_vectors<V - 1, T>(
          vectors, begin, end, {scores.k, scores.k_row, scores.q, scores.width, scores.scores});
    }
  }
  for_row_blocks<kGradRows<V>>(begin, end, scores);
}

/// Computes scores[j] = K[j] Q for all pairs of a group.
template <class T>
FOVEA_NOINLINE void all_lane_scores(const T* k, Index k_row, Index keys, const T* q, Index width,
                                    T* scores) {
  for (Index v = 0; v < 4; v += kBlockVectors) {
    const Index lane = v * kLanes<T>;
    for_row_blocks<kBlockRows<kBlockVectors>>(
        0, keys, LaneScores<kBlockVectors, T>{k, k_row, q + lane, width, scores + lane});
  }
}

/// Computes scores[j] = K[j] Q for the pairs of a group that are visible, and possibly for others.
/// \param lanes [4] the keys seen by each vector
template <class T>
FOVEA_NOINLINE void lane_scores(const VisibleKeys* lanes, const T* k, Index k_row, Index keys,
                                const T* q, Index width, T* scores) {
  constexpr Index step = 8;
  bool whole = true;
  for (Index v = 0; v < 4; ++v) whole = whole && lanes[v].begin == 0 && lanes[v].end == keys;
  if (whole) return all_lane_scores(k, k_row, keys, q, width, scores);
  for (Index j = 0; j < keys;) {
    const Vectors seen = vectors_that_see(lanes, j, j + step);
    Index end = j + step;
    while (end < keys && vectors_that_see(lanes, end, end + step) == seen) end += step;
    end = smaller(end, keys);
    for (Index v = seen.begin; v < seen.end; v += kBlockVectors) {
      score_vectors<kBlockVectors, T>(smaller(Index{kBlockVectors}, seen.end - v), j, end,
                                      {k, k_row, q + v * kLanes<T>, width, scores + v * kLanes<T>});
    }
    j = end;
  }
}

/// Sums over keys [begin, end), for V vectors of a group and R columns: one chain.
template <int V, class T>
struct LaneSums {
  const T* k;  // [keys, D]
  Index k_row;
  Index begin;
  Index end;
  const T* d_logits;  // [keys, kGradGroup]
  T* acc;             // [D, kGradGroup]

  template <int R>
  FOVEA_INLINE void run(Index c) const {
    constexpr Index group = kGradGroup<T>;
    RegisterBlock<R, V, T> sum;
    sum.clear();
    sum.multiply_add(k + begin * k_row + c, 1, k_row, d_logits + begin * group, group, end - begin);
    sum.add_from(acc + c * group, group);
    sum.store_to(acc + c * group, group);
  }
};

/// Computes acc[c] += sum_j K[j, c] d_logits[j] over the visible pairs of a group; the others have
/// d_logits 0.
template <class T>
FOVEA_NOINLINE void lane_sums(const VisibleKeys* lanes, const T* k, Index k_row, Index width,
                              const T* d_logits, T* acc) {
  Index begin = kGradTile;
  Index end = 0;
  Index pairs = 0;  // number of vectors of pairs
  for (Index v = 0; v < 4; ++v) {
    if (lanes[v].begin == lanes[v].end) continue;
    begin = smaller(begin, lanes[v].begin);
    end = larger(end, lanes[v].end);
    pairs += lanes[v].end - lanes[v].begin;
  }
  // A block of one vector has more loads per product, so it pays only if it skips enough.
  if (4 * (end - begin) * 8 <= pairs * 9) {
    for (Index v = 0; v < 4; v += kBlockVectors) {
      const Index lane = v * kLanes<T>;
      for_row_blocks<kBlockRows<kBlockVectors>>(
          0, width, LaneSums<kBlockVectors, T>{k, k_row, begin, end, d_logits + lane, acc + lane});
    }
    return;
  }
  for (Index v = 0; v < 4; ++v) {
    const Index lane = v * kLanes<T>;
    if (lanes[v].begin == lanes[v].end) continue;
    for_row_blocks<kAccumulators>(
        0, width,
        LaneSums<1, T>{k, k_row, lanes[v].begin, lanes[v].end, d_logits + lane, acc + lane});
  }
}

/// The inputs of a tile of gradients besides scores. A null pointer means that the option is
/// unused.
template <class T>
struct GradTileOptions {
  const T* slopes = nullptr;     // derivatives of soft cap and modifier
  const T* lse_low = nullptr;    // one for each lane
  const T* dropout = nullptr;    // factors: 0 or 1 / (1 - p)
  const Int<T>* seen = nullptr;  // lane masks: which pairs are visible
  bool hides = false;            // whether a logit of -infinity is a hidden pair
  int lift = 0;                  // weights and gradients are multiplied by 2 to this power
};

/// Writes P = exp(s - lse) over the scores, and dS = P (dP - delta) over dP.
/// \param lse [V * lanes], in half-logits of base 2
/// \param delta [V * lanes]
template <int V, class T>
FOVEA_NOINLINE void grad_tile(const T* lse, const T* delta, Index keys, T* scores, T* d_weights) {
  Vec<T> shift[V];
  Vec<T> d[V];
  FOVEA_UNROLL
  for (int v = 0; v < V; ++v) {
    shift[v] = load(lse + v * kLanes<T>);
    d[v] = load(delta + v * kLanes<T>);
  }
  FOVEA_UNROLL_BY(1)
  for (Index j = 0; j < keys; ++j) {
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) {
      const Index at = (j * V + v) * kLanes<T>;
      const Vec<T> p = softmax_weight(load(scores + at) - shift[v]);
      store(scores + at, p);
      store(d_weights + at, p * (load(d_weights + at) - d[v]));
    }
  }
}

/// Sets keys [begin, end) of one vector of a group to +0.
template <class T>
FOVEA_INLINE void clear_lanes(Index begin, Index end, T* scores, T* d_weights) {
  for (Index j = begin; j < end; ++j) {
    store(scores + j * kGradGroup<T>, zero<T>());
    store(d_weights + j * kGradGroup<T>, zero<T>());
  }
}

/// The weights of one vector of a group and keys [begin, end), +0 where a pair is hidden.
template <bool kBounds, class T>
FOVEA_INLINE void weigh_lanes(const Int<T>* lower, const Int<T>* upper, const T* lse,
                              const T* delta, Index begin, Index end, T* scores, T* d_weights) {
  const Vec<T> shift = load(lse);
  const Vec<T> d = load(delta);
  const IntVec<T> low = load_int<T>(lower);
  const IntVec<T> high = load_int<T>(upper);
  FOVEA_UNROLL_BY(1)
  for (Index j = begin; j < end; ++j) {
    T* const s = scores + j * kGradGroup<T>;
    T* const dw = d_weights + j * kGradGroup<T>;
    Vec<T> p = softmax_weight(load(s) - shift);
    Vec<T> d_logit = p * (load(dw) - d);
    if constexpr (kBounds) {
      const IntVec<T> key = set1_int<T>(static_cast<Int<T>>(j));
      const IntVec<T> sees = ~(key < low) & (key < high);
      p = select(sees, p, zero<T>());
      d_logit = select(sees, d_logit, zero<T>());
    }
    store(s, p);
    store(dw, d_logit);
  }
}

/// As grad_tile, where the bounds hide some pairs: their P and dS are +0.
/// \param lanes [4] the keys seen by each vector
template <class T>
FOVEA_NOINLINE void grad_tile_in_bounds(const VisibleKeys* lanes, const LaneBounds<4, T>& bounds,
                                        const T* lse, const T* delta, Index keys, T* scores,
                                        T* d_weights) {
  for (Index v = 0; v < 4; ++v) {
    const VisibleKeys& seen = lanes[v];
    const Index at = v * kLanes<T>;
    const Int<T>* const lower = bounds.lower + at;
    const Int<T>* const upper = bounds.upper + at;
    T* const s = scores + at;
    T* const d = d_weights + at;
    clear_lanes(0, seen.begin, s, d);
    weigh_lanes<true>(lower, upper, lse + at, delta + at, seen.begin, seen.full_begin, s, d);
    weigh_lanes<false>(lower, upper, lse + at, delta + at, seen.full_begin, seen.full_end, s, d);
    weigh_lanes<true>(lower, upper, lse + at, delta + at, seen.full_end, seen.end, s, d);
    clear_lanes(seen.end, keys, s, d);
  }
}

/// The same with options. For hidden pairs both are +0, regardless of their contents.
template <int V, class T>
FOVEA_NOINLINE void grad_tile(const T* lse, const T* delta, Index keys,
                              const GradTileOptions<T>& options, T* scores, T* d_weights) {
  for (Index j = 0; j < keys; ++j) {
    for (int v = 0; v < V; ++v) {
      const Index lane = v * kLanes<T>;
      const Index at = j * V * kLanes<T> + lane;
      const Vec<T> s = load(scores + at);
      Vec<T> below = s - load(lse + lane);
      if (options.lse_low != nullptr) below = below - load(options.lse_low + lane);
      Vec<T> p = weight_at_lift(below, options.lift);
      Vec<T> d_weight = load(d_weights + at);
      Vec<T> kept = p;
      if (options.dropout != nullptr) {
        const Vec<T> factor = load(options.dropout + at);
        kept = p * factor;
        d_weight = d_weight * factor;
      }
      Vec<T> d_logit = p * (d_weight - load(delta + lane));
      if (options.slopes != nullptr) d_logit = d_logit * load(options.slopes + at);
      if (options.hides) {
        const IntVec<T> hidden = s == set1(kMinusInfinity<T>);
        d_logit = select(hidden, zero<T>(), d_logit);
      }
      if (options.seen != nullptr) {
        const IntVec<T> seen = load_int<T>(options.seen + at);
        kept = select(seen, kept, zero<T>());
        d_logit = select(seen, d_logit, zero<T>());
      }
      store(scores + at, kept);
      store(d_weights + at, d_logit);
    }
  }
}

/// Sums over the queries of a tile, for R keys and C vectors of columns: acc[j, c] += sum_i
/// weights[j, i] rows[i, c], one chain over the queries that see any of the keys.
template <int C, class T>
struct KeySums {
  const GradPairs<T>& pairs;
  const T* weights;  // [groups, kGradTile, kGradGroup]
  const T* rows;     // [queries, row]
  Index row;
  T* acc;  // [keys, acc_row]
  Index acc_row;

  template <int R>
  FOVEA_INLINE void run(Index j) const {
    constexpr Index group = kGradGroup<T>;
    Index i = kGradTile;
    Index end = 0;
    for (Index n = j / kGradQuad; n <= (j + R - 1) / kGradQuad; ++n) {
      i = smaller(i, pairs.first_query[n]);
      end = larger(end, pairs.last_query[n]);
    }
    RegisterBlock<R, C, T> sum;
    sum.clear();
    while (i < end) {
      const Index part = smaller(end - i, group - i % group);
      sum.multiply_add(weights + (i / group * kGradTile + j) * group + i % group, group, 1,
                       rows + i * row, row, part);
      i += part;
    }
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      FOVEA_UNROLL
      for (int c = 0; c < C; ++c) {
        T* p = acc + (j + r) * acc_row + c * kLanes<T>;
        store(p, load(p) + sum.at[r][c]);
      }
    }
  }
};

/// Computes columns [column, width) of `sums`, C vectors at a time, then fewer.
template <int C, class T>
FOVEA_INLINE void add_key_sums(const KeySums<C, T>& sums, Index keys, Index column, Index width) {
  constexpr Index step = C * kLanes<T>;
  for (; column + step <= width; column += step) {
    KeySums<C, T> part = sums;
    part.rows += column;
    part.acc += column;
    for_row_blocks<kBlockRows<C>>(0, keys, part);
  }
  if constexpr (C > 1) {
    if (column < width) {
      add_key_sums<C / 2, T>(
          {sums.pairs, sums.weights, sums.rows, sums.row, sums.acc, sums.acc_row}, keys, column,
          width);
    }
  }
}

/// Computes acc[j, c] += sum_i weights[j, i] rows[i, c] for j in [0, keys) and c in [0, width),
/// over the visible pairs; the others have the weight 0.
/// \param weights [groups, kGradTile, kGradGroup]
/// \param rows [queries, row]
/// \param width a multiple of the lanes
template <class T>
FOVEA_NOINLINE void key_sums(const GradPairs<T>& pairs, const T* weights, Index keys, const T* rows,
                             Index row, Index width, T* acc, Index acc_row) {
  add_key_sums<kBlockVectors, T>({pairs, weights, rows, row, acc, acc_row}, keys, 0, width);
}

/// The same bits, skipping hidden pairs individually, since their weight 0 does not suppress NaN or
/// infinity in the rows.
template <class T>
FOVEA_NOINLINE void key_sums_selected(const T* weights, const Int<T>* seen, Index keys,
                                      const T* rows, Index row, Index width, Index queries, T* acc,
                                      Index acc_row) {
  constexpr Index group = kGradGroup<T>;
  for (Index j = 0; j < keys; ++j) {
    for (Index c = 0; c < width; c += kLanes<T>) {
      Vec<T> sum = zero<T>();
      for (Index i = 0; i < queries; ++i) {
        const Index at = (i / group * kGradTile + j) * group + i % group;
        if (seen[at] != 0) sum = fma(set1(weights[at]), load(rows + i * row + c), sum);
      }
      T* p = acc + j * acc_row + c;
      store(p, load(p) + sum);
    }
  }
}

/// Computes acc[c] += sum_j k[j, c] d_logits[j] over the visible pairs, like value_chain_selected.
template <int V, class T>
FOVEA_NOINLINE void query_sums_selected(const T* k, Index k_row, Index keys, Index width,
                                        const T* d_logits, const Int<T>* seen, T* acc) {
  for (Index c = 0; c < width; ++c) {
    for (int v = 0; v < V; ++v) {
      Vec<T> sum = zero<T>();
      for (Index j = 0; j < keys; ++j) {
        const Index at = (j * V + v) * kLanes<T>;
        const Vec<T> more = fma(set1(k[j * k_row + c]), load(d_logits + at), sum);
        sum = select(load_int<T>(seen + at), more, sum);
      }
      T* p = acc + (c * V + v) * kLanes<T>;
      store(p, load(p) + sum);
    }
  }
}

/// Computes delta[i] = <out_i, d_out_i>.
/// \param d_out_t, out_t [width, queries]
/// \param delta [queries]
template <class T>
FOVEA_NOINLINE void row_products(const T* d_out_t, const T* out_t, Index width, Index queries,
                                 T* delta) {
  for (Index i = 0; i < queries; i += kLanes<T>) {
    Vec<T> total = zero<T>();
    for (Index c = 0; c < width; c += kReductionBlock) {
      Vec<T> chain = zero<T>();
      for (Index d = c; d < smaller(c + kReductionBlock, width); ++d) {
        chain = fma(load(d_out_t + d * queries + i), load(out_t + d * queries + i), chain);
      }
      total = total + chain;
    }
    store(delta + i, total);
  }
}
