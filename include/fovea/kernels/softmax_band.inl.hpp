// SPDX-License-Identifier: MIT
/// \file
/// Softmax attention of rows that see few keys, at most kBandKeys each: only visible pairs are
/// computed. Beside it the tile kernel computes a band of 9 keys for 16 queries as 24 keys.
/// Scores: 16 virtual lanes along D (64 bytes, so the same sums at every level), then one tree for
/// as many queries as there are lanes, which leaves the scores of one key offset in the lanes.
/// Values: lanes along Dv. Cost 2 (D + Dv) flops per visible pair and a fourth more for the trees
/// at D = 64. Oracle and tests as softmax_block.inl.hpp.

/// Partial sums of a dot product: registers that together hold 64 bytes.
inline constexpr int kDotParts = 64 / kVecBytes;

/// Sums each of the lanes' rows: result lane i = sum of rows[i], by a fixed tree.
template <int N, class T>
FOVEA_INLINE Vec<T> sum_rows(const Vec<T> (&rows)[N]) {
  if constexpr (N == 1) {
    return rows[0];
  } else {
    Vec<T> half[N / 2];
    FOVEA_UNROLL
    for (int i = 0; i < N / 2; ++i) {
      half[i] =
          interleave<false>(rows[i], rows[i + N / 2]) + interleave<true>(rows[i], rows[i + N / 2]);
    }
    return sum_rows<N / 2>(half);
  }
}

/// The elements of one row in registers: N of them, all within the row; or, for N = 0, any width.
template <int N, class T>
struct RowRegisters {
  Vec<T> at[N];
  FOVEA_INLINE void load_scaled(const T* row, Index, Index, Vec<T> factor, T*) {
    FOVEA_UNROLL
    for (int x = 0; x < N; ++x) at[x] = load(row + x * kLanes<T>) * factor;
  }
  /// Products with another row, folded into one register whose lanes' sum is the dot product.
  FOVEA_INLINE Vec<T> dot(const T* other, Index, Index) const {
    Vec<T> part[kDotParts];
    FOVEA_UNROLL
    for (int p = 0; p < kDotParts; ++p) part[p] = zero<T>();
    FOVEA_UNROLL
    for (int x = 0; x < N; ++x) {
      part[x % kDotParts] = fma(at[x], load(other + x * kLanes<T>), part[x % kDotParts]);
    }
    return fold(part);
  }

  static FOVEA_INLINE Vec<T> fold(Vec<T> (&part)[kDotParts]) {
    if constexpr (kDotParts == 4) {
      part[0] = part[0] + part[2];
      part[1] = part[1] + part[3];
    }
    if constexpr (kDotParts >= 2) part[0] = part[0] + part[1];
    return part[0];
  }
};

template <class T>
struct RowRegisters<0, T> {
  const T* row;  // [width], scaled
  FOVEA_INLINE void load_scaled(const T* from, Index column, Index width, Vec<T> factor,
                                T* storage) {
    for (Index c = 0; c < width; c += kLanes<T>) {
      store(storage + c, load_columns(from, column, c, width) * factor);
    }
    row = storage;
  }
  FOVEA_INLINE Vec<T> dot(const T* other, Index column, Index width) const {
    Vec<T> part[kDotParts];
    FOVEA_UNROLL
    for (int p = 0; p < kDotParts; ++p) part[p] = zero<T>();
    for (Index c = 0; c < width; c += kDotParts * kLanes<T>) {
      FOVEA_UNROLL
      for (int p = 0; p < kDotParts; ++p) {
        const Index at = c + p * kLanes<T>;
        if (at >= width) break;
        part[p] = fma(load(row + at), load_columns(other, column, at, width), part[p]);
      }
    }
    return RowRegisters<1, T>::fold(part);
  }
};

/// One call: a block of queries, one register of them at a time.
/// N: D and Dv are N registers each, at unit columns; 0: any widths and columns.
template <int N, class T>
class SoftmaxBand {
 public:
  explicit SoftmaxBand(const SoftmaxBlockArgs<T>& args)
      : q_(args.q),
        k_(args.k),
        v_(args.v),
        out_(args.out),
        lse_(args.lse),
        width_(args.width),
        value_width_(args.value_width),
        first_(args.block.first),
        step_(args.block.step),
        count_(args.block.count),
        run_(args.block.run_count > 0 ? args.block.runs[0] : KeyRun{}),
        end_(args.block.run_count > 0 ? run_keys(run_, args.key_end) : 0),
        factor_(logit_factor(args.scale)),
        products_(args.scratch),
        weights_(products_ + kBandKeys * kQueries * kQueries),
        scaled_q_(weights_ + kBandKeys * kQueries) {}

  FOVEA_INLINE void run() const {
    for (Index first = 0; first < count_; first += kQueries) group(first);
  }

 private:
  static constexpr int kQueries = kLanes<T>;

  /// The keys that one query sees: its first one, and how many.
  struct Seen {
    Index key;
    Index count;
  };

  FOVEA_INLINE Seen seen(Index row) const {
    const Index low = run_.lower == nullptr ? 0 : run_.lower[row];
    const Index high = smaller(run_.upper == nullptr ? run_.count : run_.upper[row], end_);
    return {run_.first + run_.step * low, larger(0, high - low)};
  }

  FOVEA_INLINE Index position(Index row) const { return first_ + step_ * row; }

  FOVEA_INLINE void group(Index first) const {
    const Index rows = smaller(kQueries, count_ - first);
    Seen keys[kQueries];
    alignas(kVecBytes) Int<T> counts[kQueries] = {};
    Index most = 0;
    for (Index i = 0; i < rows; ++i) {
      keys[i] = seen(first + i);
      counts[i] = static_cast<Int<T>>(keys[i].count);
      most = larger(most, keys[i].count);
      multiply(first + i, i, keys[i]);
    }
    alignas(kVecBytes) T max_logit[kQueries];
    alignas(kVecBytes) T sum[kQueries];
    weigh(most, counts, max_logit, sum);
    alignas(kVecBytes) T inverse[kQueries];
    store(inverse, set1<T>(1) / load(sum));
    for (Index i = 0; i < rows; ++i) values(first + i, keys[i], weights_ + i, inverse[i]);
    if (lse_.data != nullptr) write_lse(first, rows, counts, max_logit, sum);
  }

  /// products_[o, i] = the folded products of query row and its o-th key.
  FOVEA_INLINE void multiply(Index row, Index i, const Seen& keys) const {
    RowRegisters<N, T> q;
    q.load_scaled(q_.data + position(row) * q_.row, q_.column, width_, set1(factor_), scaled_q_);
    const T* k = k_.data + keys.key * k_.row;
    const Index step = run_.step * k_.row;
    T* to = products_ + i * kQueries;
    for (Index o = 0; o < keys.count; ++o) {
      store(to, q.dot(k, k_.column, width_));
      k += step;
      to += kQueries * kQueries;
    }
    if constexpr (N > 0) prefetch(row, keys);
  }

  /// Asks for what the next group reads and writes first: rows of q and out, and the key and value
  /// that come into the band. A band does so little work per byte that it would wait for memory.
  FOVEA_INLINE void prefetch(Index row, const Seen& keys) const {
    const Index next = position(smaller(row + kQueries, count_ - 1));
    const Index last = run_.first + run_.step * (end_ - 1);
    const Index key = larger(0, smaller(keys.key + run_.step * (keys.count + kQueries), last));
    prefetch_row<0>(q_.data + next * q_.row);
    prefetch_row<0>(k_.data + key * k_.row);
    prefetch_row<0>(v_.data + key * v_.row);
    prefetch_row<1>(out_.data + next * out_.row);
  }

  template <int Write>
  static FOVEA_INLINE void prefetch_row(const T* row) {
    FOVEA_UNROLL
    for (int c = 0; c < N * kVecBytes / 64; ++c) {
      __builtin_prefetch(row + c * (64 / static_cast<int>(sizeof(T))), Write);
    }
  }

  /// weights_[o] from products_[o], o in [0, most); the maximum and the sum of each query.
  FOVEA_INLINE void weigh(Index most, const Int<T>* counts, T* max_logit, T* sum) const {
    Vec<T> top = set1(kMinusInfinity<T>);
    for (Index o = 0; o < most; ++o) {
      Vec<T> rows[kQueries];
      FOVEA_UNROLL
      for (int i = 0; i < kQueries; ++i) rows[i] = load(products_ + (o * kQueries + i) * kQueries);
      const IntVec<T> sees = set1_int<T>(static_cast<Int<T>>(o)) < load_int<T>(counts);
      const Vec<T> score = select(sees, sum_rows<kQueries>(rows), set1(kMinusInfinity<T>));
      store(weights_ + o * kQueries, score);
      top = max(top, score);
    }
    alignas(kVecBytes) T nothing[kQueries];  // there is no sum before
    store(nothing, zero<T>());
    store(sum, zero<T>());
    store(max_logit, top);
    weight_chain<1>(weights_, most, max_logit, nothing, sum);
  }

  /// One row of output. \param weights [count] at stride kQueries
  FOVEA_INLINE void values(Index row, const Seen& keys, const T* weights, T inverse) const {
    T* to = out_.data + position(row) * out_.row;
    // From the integers, not from the sum: a row that sees no key is +0.
    const Vec<T> factor = keys.count == 0 ? zero<T>() : set1(inverse);
    if constexpr (N > 0) {
      columns<N>(keys, 0, weights, factor, to);
    } else {
      for (Index c = 0; c < value_width_; c += kLanes<T>) columns<1>(keys, c, weights, factor, to);
    }
  }

  template <int C>
  FOVEA_INLINE void columns(const Seen& keys, Index c, const T* weights, Vec<T> factor,
                            T* to) const {
    const T* v = v_.data + keys.key * v_.row;
    const Index step = run_.step * v_.row;
    Vec<T> sum[C];
    FOVEA_UNROLL
    for (int x = 0; x < C; ++x) sum[x] = zero<T>();
    for (Index o = 0; o < keys.count; ++o) {
      const Vec<T> weight = set1(weights[o * kQueries]);
      FOVEA_UNROLL
      for (int x = 0; x < C; ++x) {
        const Vec<T> value =
            N > 0 ? load(v + x * kLanes<T>) : load_columns(v, v_.column, c, value_width_);
        sum[x] = fma(weight, value, sum[x]);
      }
      v += step;
    }
    FOVEA_UNROLL
    for (int x = 0; x < C; ++x) {
      if constexpr (N > 0) {
        store(to + x * kLanes<T>, sum[x] * factor);
      } else {
        store_columns(to, out_.column, c, value_width_, sum[x] * factor);
      }
    }
  }

  FOVEA_NOINLINE void write_lse(Index first, Index rows, const Int<T>* counts, const T* max_logit,
                                const T* sum) const {
    alignas(kVecBytes) T lse[kQueries];
    store(lse, select(set1_int<T>(0) < load_int<T>(counts), log_sum_exp(load(max_logit), load(sum)),
                      set1(kMinusInfinity<T>)));
    for (Index i = 0; i < rows; ++i) lse_.data[position(first + i) * lse_.row] = lse[i];
  }

  const Matrix<const T> q_;
  const Matrix<const T> k_;
  const Matrix<const T> v_;
  const Matrix<T> out_;
  const Matrix<T> lse_;
  const Index width_;
  const Index value_width_;
  const Index first_;  // rows of the block: first_ + step_ * [0, count_)
  const Index step_;
  const Index count_;
  const KeyRun run_;
  const Index end_;    // of the run's keys that lie before key_end
  const T factor_;     // of the logits
  T* const products_;  // [kBandKeys, lanes, lanes]
  T* const weights_;   // [kBandKeys, lanes]
  T* const scaled_q_;  // [D padded], if N = 0
};
