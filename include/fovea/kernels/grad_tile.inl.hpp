// SPDX-License-Identifier: MIT
/// \file
/// The steps of one tile of the backward pass: weights and their gradients from scores, and the
/// products that sum over queries. Tiles of scores are [keys, V * lanes], as in softmax_tile.

/// What a tile of gradients is made with beside scores, each only if there is it.
template <class T>
struct GradTileOptions {
  const T* capped = nullptr;     // logits after the soft cap
  T inverse_cap = 0;             // of half-base-2 logits
  const T* dropout = nullptr;    // 0 or 1 / (1 - p)
  const Int<T>* seen = nullptr;  // lane masks: which pairs are visible
  bool hides = false;            // a logit of -inf is a hidden pair
  int lift = 0;                  // weights and gradients are times 2 to this power
  bool before_cap = false;       // the gradient of the logits after the cap: that of the bias
};

/// P = exp(s - lse) and dS = P (dP - delta), in place of the scores and of dP.
/// \param lse in half-base-2 units   \param lse, delta [V * lanes]
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

/// The same with options. Where a pair is hidden both are +0, whatever stood there.
template <int V, class T>
FOVEA_NOINLINE void grad_tile(const T* lse, const T* delta, Index keys,
                              const GradTileOptions<T>& options, T* scores, T* d_weights) {
  for (Index j = 0; j < keys; ++j) {
    for (int v = 0; v < V; ++v) {
      const Index lane = v * kLanes<T>;
      const Index at = j * V * kLanes<T> + lane;
      const Vec<T> s = load(scores + at);
      Vec<T> p = weight_at_lift(s - load(lse + lane), options.lift);
      Vec<T> d_weight = load(d_weights + at);
      Vec<T> kept = p;
      if (options.dropout != nullptr) {
        const Vec<T> factor = load(options.dropout + at);
        kept = p * factor;
        d_weight = d_weight * factor;
      }
      Vec<T> d_logit = p * (d_weight - load(delta + lane));
      if (options.capped != nullptr && !options.before_cap) {
        const Vec<T> ratio = load(options.capped + at) * set1(options.inverse_cap);
        d_logit = d_logit * fma(zero<T>() - ratio, ratio, set1<T>(1));
      }
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

/// Sums over the queries of a tile: for R keys and C vectors of columns,
/// acc[j, c] += sum_i weights[j, i] rows[i, c], one chain over all queries.
template <int C, class T>
struct KeySums {
  const T* weights;  // [groups, kGradTile, group]: key j of a group at weights + j * group
  Index group;       // queries of a group
  const T* rows;     // [queries, row]
  Index row;
  Index queries;
  T* acc;  // [keys, acc_row]
  Index acc_row;

  template <int R>
  FOVEA_INLINE void run(Index j) const {
    RegisterBlock<R, C, T> sum;
    sum.clear();
    for (Index i = 0; i < queries; i += group) {
      sum.multiply_add(weights + i * kGradTile + j * group, group, 1, rows + i * row, row,
                       smaller(group, queries - i));
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

/// Columns [column, width) of `sums`, C vectors at a time, then fewer.
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
          {sums.weights, sums.group, sums.rows, sums.row, sums.queries, sums.acc, sums.acc_row},
          keys, column, width);
    }
  }
}

/// acc[j, c] += sum_i weights[j, i] rows[i, c] for j in [0, keys), c in [0, row).
/// \param weights [groups, kGradTile, group]   \param rows [queries, row], row a multiple of lanes
template <class T>
FOVEA_NOINLINE void key_sums(const T* weights, Index group, Index keys, const T* rows, Index row,
                             Index queries, T* acc, Index acc_row) {
  add_key_sums<4, T>({weights, group, rows, row, queries, acc, acc_row}, keys, 0, row);
}

/// The same bits with the hidden pairs left out, whose weight 0 does not silence a NaN or an
/// infinity in the rows.
template <class T>
FOVEA_NOINLINE void key_sums_selected(const T* weights, const Int<T>* seen, Index group, Index keys,
                                      const T* rows, Index row, Index queries, T* acc,
                                      Index acc_row) {
  for (Index j = 0; j < keys; ++j) {
    for (Index c = 0; c < row; c += kLanes<T>) {
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

/// acc[c] += sum_j k[j, c] d_logits[j] over the visible pairs: value_chain with them selected.
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

/// delta[i] = <out_i, d_out_i>. \param d_out_t, out_t [width, queries]   \param delta [queries]
template <class T>
FOVEA_NOINLINE void row_products(const T* d_out_t, const T* out_t, Index width, Index queries,
                                 T* delta) {
  for (Index i = 0; i < queries; i += kLanes<T>) {
    Vec<T> total = zero<T>();
    for (Index c = 0; c < width; c += kChain) {
      Vec<T> chain = zero<T>();
      for (Index d = c; d < smaller(c + kChain, width); ++d) {
        chain = fma(load(d_out_t + d * queries + i), load(out_t + d * queries + i), chain);
      }
      total = total + chain;
    }
    store(delta + i, total);
  }
}
