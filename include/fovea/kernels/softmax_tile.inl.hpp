// SPDX-License-Identifier: MIT
/// \file
/// The steps of one tile of the softmax kernel: scores, masking, maximum; and, for each chain of
/// its keys, weights and values. A tile is up to kKeyTile keys against V vectors of queries;
/// matrices of it are [keys, V * lanes].
///
/// Logits are kept as s log2(e) / 2: halved, so that no finite logit overflows and the difference
/// to the maximum doubles exactly in `softmax_weight`.

/// Constants of `softmax_weight`.
template <class T>
struct WeightConstants;
template <>
struct WeightConstants<float> {
  // 1.5 2^23 rounds to an integer; with the exponent's bias, its low bits are an exponent field.
  static constexpr float kRound = 12582912.0F + 127.0F;
  static constexpr float kLowest = -63.5F;  // 2 kLowest has the exponent field 0
  static constexpr int kMantissaBits = 23;
};
template <>
struct WeightConstants<double> {
  static constexpr double kRound = 6755399441055744.0 + 1023.0;  // 1.5 2^52
  static constexpr double kLowest = -511.5;
  static constexpr int kMantissaBits = 52;
};

template <class T>
inline constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();

/// 2^lift 4^d, +0 where the exponent field of that is 0 or less. NaN stays NaN, whatever its
/// payload: the power of two is multiplied, not added to the bits. \param lift even
template <class T>
FOVEA_INLINE Vec<T> power_of_four(Vec<T> d, int lift) {
  using Constants = WeightConstants<T>;
  const Vec<T> two = set1<T>(2);
  const Vec<T> round = set1(Constants::kRound + static_cast<T>(lift));
  // In this order: a NaN in d stays.
  d = max(set1(Constants::kLowest - static_cast<T>(lift / 2)), d);
  const Vec<T> rounded = fma(d, two, round);
  const Vec<T> fraction = fma(d, two, round - rounded);
  return exp2_fraction(fraction) * from_bits<T>(bits(rounded) << Constants::kMantissaBits);
}

/// 4^d for d <= 0: +0 from 2^-126.5 (float) or 2^-1022.5 (double) down.
template <class T>
FOVEA_INLINE Vec<T> softmax_weight(Vec<T> d) {
  return power_of_four(d, 0);
}

/// 2^lift 4^d for d <= 0: +0 where softmax_weight is, so that no product with a value of 2^-lift or
/// more is subnormal.
template <class T>
FOVEA_INLINE Vec<T> lifted_weight(Vec<T> d, int lift) {
  const IntVec<T> vanishes = d < set1(WeightConstants<T>::kLowest + T{0.25});
  return select(vanishes, zero<T>(), power_of_four(d, lift));
}

/// Either of them: that of a lift, 0 or more.
template <class T>
FOVEA_INLINE Vec<T> weight_at_lift(Vec<T> d, int lift) {
  return lift == 0 ? softmax_weight(d) : lifted_weight(d, lift);
}

/// What brings q to half-logits of base 2.
template <class T>
FOVEA_INLINE T logit_factor(T scale) {
  return static_cast<T>(static_cast<double>(scale) * 0.72134752044448170368);  // log2(e) / 2
}

/// 2^power, exactly.
template <class T>
FOVEA_INLINE T power_of_two(int power) {
  T x = 1;
  for (; power > 0; --power) x *= 2;
  for (; power < 0; ++power) x /= 2;
  return x;
}

/// lse in natural units of a running softmax of lifted weights; 2 ln 2 undoes `logit_factor`.
template <class T>
FOVEA_INLINE Vec<T> log_sum_exp(Vec<T> max_logit, Vec<T> sum, int lift = 0) {
  const Vec<T> total = sum * set1(power_of_two<T>(-lift));
  return fma(max_logit, set1(static_cast<T>(1.38629436111989061883)), log(total));
}

/// What to subtract from logits whose maximum is m: m, but 0 for -inf (no key seen, or only logits
/// of -inf), since -inf - -inf is NaN.
template <class T>
FOVEA_INLINE Vec<T> finite_shift(Vec<T> m) {
  return select(m == set1(kMinusInfinity<T>), zero<T>(), m);
}

/// One more logit, in natural units, that has no value. Returns what brings earlier sums of values
/// to the new maximum: with gradual underflow, since it can be far below 1 for the whole row.
template <class T>
FOVEA_INLINE Vec<T> add_sink(T sink, int lift, Vec<T>& max_logit, Vec<T>& sum) {
  const Vec<T> logit = set1(logit_factor(sink));
  const Vec<T> now = max(max_logit, logit);
  const Vec<T> shift = finite_shift(now);
  const Vec<T> below = max_logit - shift;
  const Vec<T> sink_below = logit - shift;
  const Vec<T> rescale = exp2(below + below);
  sum = fma(sum, rescale, exp2(sink_below + sink_below) * set1(power_of_two<T>(lift)));
  max_logit = now;
  return rescale;
}

/// Which keys of a tile each lane sees: those of [lower, upper), counted from its first key.
template <int V, class T>
struct LaneBounds {
  alignas(kVecBytes) Int<T> lower[V * kLanes<T>];
  alignas(kVecBytes) Int<T> upper[V * kLanes<T>];

  FOVEA_INLINE IntVec<T> sees(int v, Index key) const {
    const IntVec<T> j = set1_int<T>(static_cast<Int<T>>(key));
    const IntVec<T> low = load_int<T>(lower + v * kLanes<T>);
    const IntVec<T> high = load_int<T>(upper + v * kLanes<T>);
    return ~(j < low) & (j < high);
  }
};

/// Scores of R keys: rows of K times transposed queries, and the running maximum.
template <int V, class T>
struct ScoreRows {
  const T* k;  // [keys, D]
  Index k_row;
  const T* q;  // [D, V * lanes]
  Index width;
  T* scores;  // [keys, V * lanes]
  Vec<T> (&most)[V];

  template <int R>
  FOVEA_INLINE void run(Index j) const {
    constexpr int queries = V * kLanes<T>;
    RegisterBlock<R, V, T> s;
    s.clear();
    s.multiply_add(k + j * k_row, k_row, 1, q, queries, smaller(width, kChain));
    for (Index c = kChain; c < width; c += kChain) {
      s.store_to(scores + j * queries);
      s.clear();
      s.multiply_add(k + j * k_row + c, k_row, 1, q + c * queries, queries,
                     smaller(width - c, kChain));
      s.add_from(scores + j * queries);
    }
    s.store_to(scores + j * queries);
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) most[v] = max(most[v], s.at[r][v]);
    }
  }
};

/// scores[j] = K[j] Q for j in [0, keys); most = the largest of them, per query.
template <int V, class T>
FOVEA_NOINLINE void score_tile(const T* k, Index k_row, Index keys, const T* q, Index width,
                               T* scores, T* most) {
  Vec<T> m[V];
  FOVEA_UNROLL
  for (int v = 0; v < V; ++v) m[v] = set1(kMinusInfinity<T>);
  for_row_blocks<kBlockRows<V>>(0, keys, ScoreRows<V, T>{k, k_row, q, width, scores, m});
  FOVEA_UNROLL
  for (int v = 0; v < V; ++v) store(most + v * kLanes<T>, m[v]);
}

/// Takes the invisible pairs out of the scores of keys [begin, end).
template <int V, class T>
FOVEA_NOINLINE void mask_tile(const LaneBounds<V, T>& bounds, Index begin, Index end, T* scores) {
  for (Index j = begin; j < end; ++j) {
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) {
      T* p = scores + j * V * kLanes<T> + v * kLanes<T>;
      store(p, select(bounds.sees(v, j), load(p), set1(kMinusInfinity<T>)));
    }
  }
}

/// most = the largest of the scores of keys [begin, end), per query.
template <int V, class T>
FOVEA_NOINLINE void maximum_of_tile(const T* scores, Index begin, Index end, T* most) {
  Vec<T> m[V];
  FOVEA_UNROLL
  for (int v = 0; v < V; ++v) m[v] = set1(kMinusInfinity<T>);
  for (Index j = begin; j < end; ++j) {
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) m[v] = max(m[v], load(scores + (j * V + v) * kLanes<T>));
  }
  FOVEA_UNROLL
  for (int v = 0; v < V; ++v) store(most + v * kLanes<T>, m[v]);
}

/// The running maximum with a tile's scores, and what brings earlier sums to it.
/// \param most [V * lanes] of this tile   \param max_logit [V * lanes] running
template <int V, class T>
FOVEA_INLINE void raise_maximum(const T* most, T* max_logit, T* rescale) {
  FOVEA_UNROLL
  for (int v = 0; v < V; ++v) {
    const Index lane = v * kLanes<T>;
    const Vec<T> before = load(max_logit + lane);
    const Vec<T> now = max(before, load(most + lane));
    store(max_logit + lane, now);
    store(rescale + lane, softmax_weight(before - finite_shift(now)));
  }
}

/// Scores to weights in place, for the keys of one chain; sum = sum rescale + their weights.
/// \param max_logit, sum, rescale [V * lanes]   \param lift of the weights, 0 if not kLifted
template <int V, bool kLifted, class T>
FOVEA_NOINLINE void weigh_chain(T* scores, Index keys, const T* max_logit, const T* rescale,
                                int lift, T* sum) {
  Vec<T> shift[V];
  Vec<T> chain[V];
  FOVEA_UNROLL
  for (int v = 0; v < V; ++v) {
    shift[v] = finite_shift(load(max_logit + v * kLanes<T>));
    chain[v] = zero<T>();
  }
  FOVEA_UNROLL_BY(1)
  for (Index j = 0; j < keys; ++j) {
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) {
      T* p = scores + j * V * kLanes<T> + v * kLanes<T>;
      const Vec<T> below = load(p) - shift[v];
      const Vec<T> weight = kLifted ? lifted_weight(below, lift) : softmax_weight(below);
      store(p, weight);
      chain[v] = chain[v] + weight;
    }
  }
  FOVEA_UNROLL
  for (int v = 0; v < V; ++v) {
    T* p = sum + v * kLanes<T>;
    store(p, fma(load(p), load(rescale + v * kLanes<T>), chain[v]));
  }
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

/// Weighted sums of R value columns.
template <int V, class T>
struct ValueColumns {
  const T* v;  // [keys, Dv]
  Index v_row;
  Index keys;
  const T* weights;  // [keys, V * lanes]
  const T* rescale;  // [V * lanes]
  T* acc;            // [Dv, V * lanes]

  template <int R>
  FOVEA_INLINE void run(Index c) const {
    RegisterBlock<R, V, T> sum;
    sum.clear();
    sum.multiply_add(v + c, 1, v_row, weights, V * kLanes<T>, keys);
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      FOVEA_UNROLL
      for (int i = 0; i < V; ++i) {
        T* p = acc + (c + r) * V * kLanes<T> + i * kLanes<T>;
        store(p, fma(load(p), load(rescale + i * kLanes<T>), sum.at[r][i]));
      }
    }
  }
};

/// acc[c] = acc[c] rescale + sum_j V[j, c] weights[j]: where a pair is invisible its weight is 0.
template <int V, class T>
FOVEA_NOINLINE void value_chain(const T* v, Index v_row, Index keys, Index value_width,
                                const T* weights, const T* rescale, T* acc) {
  for_row_blocks<kBlockRows<V>>(0, value_width,
                                ValueColumns<V, T>{v, v_row, keys, weights, rescale, acc});
}

/// The same bits with the invisible pairs left out, whose weight 0 does not silence a NaN or an
/// infinity in V. \param visible [keys, V * lanes] lane masks
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

/// Whether rows [0, rows) at unit columns hold neither NaN nor infinity.
template <class T>
FOVEA_NOINLINE bool all_finite(const T* m, Index row, Index rows, Index width) {
  Vec<T> poison = zero<T>();
  for (Index i = 0; i < rows; ++i) {
    for (Index c = 0; c < width; c += kLanes<T>) {
      const Vec<T> x = load_columns(m + i * row, 1, c, width);
      poison = poison + (x - x);
    }
  }
  return !any<T>(~(poison == zero<T>()));
}
