// SPDX-License-Identifier: MIT
/// \file
/// Softmax attention of rows with few visible keys, at most kBandKeys each: only visible pairs are
/// computed. The tile kernel would compute a band of 9 keys for 16 queries as 24 keys. Scores are
/// summed in 16 virtual lanes along D (64 bytes, so that the sums are the same at every level), and
/// then by one tree for as many queries as lanes, which leaves the scores of one key offset in the
/// lanes. For values the lanes are along Dv. Cost: 2 (D + Dv) flops for each visible pair, plus a
/// quarter at D = 64 for the trees.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/band_rows.inl.hpp"
#include "fovea/kernels/softmax/block.hpp"
#include "fovea/kernels/softmax/running_softmax.inl.hpp"
#include "fovea/kernels/softmax/tile.inl.hpp"
#endif

/// The memory to prefetch while a register of queries is computed: the next one's. Computing a row
/// takes about as long as loading it, and pages are too short for the hardware prefetcher.
struct BandPrefetcher {
  RowPrefetcher<0> queries;
  RowPrefetcher<1> outputs;
  RowPrefetcher<0> keys;
  RowPrefetcher<0> values;

  FOVEA_INLINE void prefetch() {
    queries.prefetch(1);
    outputs.prefetch(1);
    keys.prefetch(1);
    values.prefetch(1);
  }
};

/// One call: a block of queries, processed one register at a time. If N is not 0, D and Dv are N
/// registers each, at unit columns; N = 0 takes any widths and columns.
template <int N, class T>
class SoftmaxBand {
 public:
  explicit SoftmaxBand(const SoftmaxBlockArgs<T>& args)
      : args_(args),
        q_(native<T>(args.q)),
        k_(native<T>(args.k)),
        v_(native<T>(args.v)),
        out_(native<T>(args.out)),
        lse_(args.lse),
        width_(args.width),
        value_width_(args.value_width),
        first_(args.block.first),
        step_(args.block.step),
        count_(args.block.count),
        run_(args.block.run_count > 0 ? args.block.runs[0] : KeyRun{}),
        first_row_(args.key_rows.row(run_.first)),
        row_step_(args.key_rows.step(run_.step)),
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

  /// Whether two queries and a key, or two sums and a value, fit the registers. Then a row visible
  /// to both queries is loaded once. (Rows mostly straddle cache lines, and load at half the
  /// speed.)
  static constexpr bool kPairs = N > 0 && 3 * N + 4 <= kVecRegisters;

  /// The keys [begin, end) of the run visible to one query.
  struct Seen {
    Index begin;
    Index end;
  };

  FOVEA_INLINE Seen seen(Index row) const {
    const Index low = run_.lower == nullptr ? 0 : run_.lower[row];
    const Index high = smaller(run_.upper == nullptr ? run_.count : run_.upper[row], end_);
    return {low, larger(low, high)};
  }

  FOVEA_INLINE Index position(Index row) const { return first_ + step_ * row; }
  FOVEA_INLINE const T* query(Index row) const { return q_.data + position(row) * q_.row; }
  FOVEA_INLINE const T* key(Index t) const {
    return k_.data + (first_row_ + row_step_ * t) * k_.row;
  }
  FOVEA_INLINE const T* value(Index t) const {
    return v_.data + (first_row_ + row_step_ * t) * v_.row;
  }
  FOVEA_INLINE T* output(Index row) const { return out_.data + position(row) * out_.row; }

  /// The rows and keys of the group after the one that begins at row \p first and sees keys up to
  /// \p key_end. The last group of a block is followed by the first one of the next block, whose
  /// keys are mostly as far from this one's as its rows.
  FOVEA_INLINE BandPrefetcher ahead_of(Index first, Index key_end) const {
    Index row = position(first + kQueries);
    Index rows = smaller(kQueries, count_ - first - kQueries);
    if (rows <= 0) {
      row = first_ + args_.next_block;
      rows = args_.next_block == 0 ? 0 : smaller(kQueries, count_);
      key_end = larger(0, seen(0).begin + args_.next_block);
    }
    const Index keys = smaller(rows, end_ - key_end);
    const Index key = first_row_ + row_step_ * key_end;
    BandPrefetcher ahead;
    ahead.queries = RowPrefetcher<0>::template of<T>(args_.q, row, step_, rows, width_);
    ahead.outputs =
        RowPrefetcher<1>::template of<T>(output_of(args_), row, step_, rows, value_width_);
    ahead.keys = RowPrefetcher<0>::template of<T>(args_.k, key, row_step_, keys, width_);
    ahead.values = RowPrefetcher<0>::template of<T>(args_.v, key, row_step_, keys, value_width_);
    return ahead;
  }

  FOVEA_INLINE void group(Index first) const {
    const Index rows = smaller(kQueries, count_ - first);
    Seen keys[kQueries];
    alignas(kVecBytes) Int<T> counts[kQueries] = {};
    Index most = 0;
    for (Index i = 0; i < rows; ++i) {
      keys[i] = seen(first + i);
      const Index count = keys[i].end - keys[i].begin;
      counts[i] = static_cast<Int<T>>(count);
      most = larger(most, count);
    }
    BandPrefetcher ahead = ahead_of(first, rows > 0 ? keys[rows - 1].end : 0);
    for (Index i = 0; i < rows; ++i) {
      ahead.prefetch();
      if (kPairs && i + 1 < rows && overlap(keys[i], keys[i + 1])) {
        multiply_pair(first + i, i, keys[i], keys[i + 1]);
        ++i;
      } else {
        multiply(first + i, i, keys[i]);
      }
    }

    alignas(kVecBytes) T max_logit[kQueries];
    alignas(kVecBytes) T sum[kQueries];
    weigh(most, counts, max_logit, sum);
    // From the integers, not from the sum: a row without keys is +0.
    const IntVec<T> sees = set1_int<T>(0) < load_int<T>(counts);
    alignas(kVecBytes) T inverse[kQueries];
    store(inverse, select(sees, set1<T>(1) / load(sum), zero<T>()));
    for (Index i = 0; i < rows; ++i) {
      ahead.prefetch();
      if (kPairs && i + 1 < rows && overlap(keys[i], keys[i + 1])) {
        values_pair(first + i, i, keys[i], keys[i + 1], inverse[i], inverse[i + 1]);
        ++i;
      } else {
        values(first + i, i, keys[i], inverse[i]);
      }
    }
    if (lse_.data != nullptr) write_lse(first, rows, sees, load(max_logit), load(sum));
  }

  /// Writes products_[t - begin, i] for query i of the group and all its keys t.
  FOVEA_INLINE void multiply(Index row, Index i, const Seen& keys) const {
    if constexpr (N > 0) {
      RegisterRow<N, T> q;
      q.load_from(query(row));
      q.scale(factor_);
      multiply_keys(q, i, keys, keys.begin, keys.end);
    } else {
      for (Index c = 0; c < width_; c += kLanes<T>) {
        store(scaled_q_ + c, load_columns(query(row), q_.column, c, width_) * set1(factor_));
      }
      for (Index t = keys.begin; t < keys.end; ++t) {
        store(products(i, keys, t), products_of(scaled_q_, key(t), k_.column, width_));
      }
    }
  }

  /// The same for queries i and i + 1, whose keys overlap: shared keys are loaded once.
  FOVEA_INLINE void multiply_pair(Index row, Index i, const Seen& a, const Seen& b) const {
    RegisterRow<larger(N, 1), T> q;
    RegisterRow<larger(N, 1), T> r;
    q.load_from(query(row));
    r.load_from(query(row + 1));
    q.scale(factor_);
    r.scale(factor_);
    const Seen both = shared(a, b);
    multiply_keys(q, i, a, a.begin, both.begin);
    multiply_keys(r, i + 1, b, b.begin, both.begin);
    const T* from = key(both.begin);
    T* to_a = products(i, a, both.begin);
    T* to_b = products(i + 1, b, both.begin);
    for (Index t = both.begin; t < both.end; ++t) {
      RegisterRow<larger(N, 1), T> k;
      k.load_from(from);
      store(to_a, q.products(k));
      store(to_b, r.products(k));
      from += row_step_ * k_.row;
      to_a += kQueries * kQueries;
      to_b += kQueries * kQueries;
    }
    multiply_keys(q, i, a, both.end, a.end);
    multiply_keys(r, i + 1, b, both.end, b.end);
  }

  FOVEA_INLINE void multiply_keys(const RegisterRow<larger(N, 1), T>& q, Index i, const Seen& keys,
                                  Index begin, Index end) const {
    const T* from = key(begin);
    T* to = products(i, keys, begin);
    for (Index t = begin; t < end; ++t) {
      RegisterRow<larger(N, 1), T> k;
      k.load_from(from);
      store(to, q.products(k));
      from += row_step_ * k_.row;
      to += kQueries * kQueries;
    }
  }

  static FOVEA_INLINE bool overlap(const Seen& a, const Seen& b) {
    return a.begin < b.end && b.begin < a.end && a.begin < a.end && b.begin < b.end;
  }
  static FOVEA_INLINE Seen shared(const Seen& a, const Seen& b) {
    return {larger(a.begin, b.begin), smaller(a.end, b.end)};
  }

  FOVEA_INLINE T* products(Index i, const Seen& keys, Index t) const {
    return products_ + ((t - keys.begin) * kQueries + i) * kQueries;
  }

  /// Computes weights_[o] from products_[o] for o in [0, most), and each query's maximum and sum.
  FOVEA_INLINE void weigh(Index most, const Int<T>* counts, T* max_logit, T* sum) const {
    Vec<T> top = set1(kMinusInfinity<T>);
    for (Index o = 0; o < most; ++o) {
      Vec<T> rows[kQueries];
      FOVEA_UNROLL
      for (int i = 0; i < kQueries; ++i) rows[i] = load(products_ + (o * kQueries + i) * kQueries);
      const IntVec<T> sees = set1_int<T>(static_cast<Int<T>>(o)) < load_int<T>(counts);
      const Vec<T> score = select(sees, sum_rows<kQueries>(rows), set1(kMinusInfinity<T>));
      store(weights_ + o * kQueries, score);
      top = maximum(top, score);
    }
    alignas(kVecBytes) T nothing[kQueries];  // no earlier sum
    store(nothing, zero<T>());
    store(sum, zero<T>());
    store(max_logit, top);
    weight_chain<1>(weights_, most, max_logit, nothing, 0, sum);
  }

  /// Computes one row of output.
  FOVEA_INLINE void values(Index row, Index i, const Seen& keys, T inverse) const {
    if constexpr (N > 0) {
      RegisterRow<N, T> sum;
      sum.clear();
      add_values(sum, i, keys, keys.begin, keys.end);
      sum.store_scaled(output(row), inverse);
    } else {
      for (Index c = 0; c < value_width_; c += kLanes<T>) {
        Vec<T> sum = zero<T>();
        for (Index t = keys.begin; t < keys.end; ++t) {
          sum = fma(set1(*weight(i, keys, t)), load_columns(value(t), v_.column, c, value_width_),
                    sum);
        }
        store_columns(output(row), out_.column, c, value_width_, sum * set1(inverse));
      }
    }
  }

  /// Computes two rows of output; shared values are loaded once.
  FOVEA_INLINE void values_pair(Index row, Index i, const Seen& a, const Seen& b, T inverse_a,
                                T inverse_b) const {
    RegisterRow<larger(N, 1), T> x;
    RegisterRow<larger(N, 1), T> y;
    x.clear();
    y.clear();
    const Seen both = shared(a, b);
    add_values(x, i, a, a.begin, both.begin);
    add_values(y, i + 1, b, b.begin, both.begin);
    const T* from = value(both.begin);
    const T* weight_a = weight(i, a, both.begin);
    const T* weight_b = weight(i + 1, b, both.begin);
    for (Index t = both.begin; t < both.end; ++t) {
      RegisterRow<larger(N, 1), T> v;
      v.load_from(from);
      x.add_weighted(*weight_a, v);
      y.add_weighted(*weight_b, v);
      from += row_step_ * v_.row;
      weight_a += kQueries;
      weight_b += kQueries;
    }
    add_values(x, i, a, both.end, a.end);
    add_values(y, i + 1, b, both.end, b.end);
    x.store_scaled(output(row), inverse_a);
    y.store_scaled(output(row + 1), inverse_b);
  }

  FOVEA_INLINE void add_values(RegisterRow<larger(N, 1), T>& sum, Index i, const Seen& keys,
                               Index begin, Index end) const {
    const T* from = value(begin);
    const T* w = weight(i, keys, begin);
    for (Index t = begin; t < end; ++t) {
      RegisterRow<larger(N, 1), T> v;
      v.load_from(from);
      sum.add_weighted(*w, v);
      from += row_step_ * v_.row;
      w += kQueries;
    }
  }

  FOVEA_INLINE const T* weight(Index i, const Seen& keys, Index t) const {
    return weights_ + (t - keys.begin) * kQueries + i;
  }

  FOVEA_INLINE void write_lse(Index first, Index rows, IntVec<T> sees, Vec<T> max_logit,
                              Vec<T> sum) const {
    alignas(kVecBytes) T lse[kQueries];
    store(lse, select(sees, log_sum_exp(max_logit, sum), set1(kMinusInfinity<T>)));
    for (Index i = 0; i < rows; ++i) lse_.data[position(first + i) * lse_.row] = lse[i];
  }

  const SoftmaxBlockArgs<T>& args_;
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
  const Index first_row_;  // row of k and v of the run's first key
  const Index row_step_;   // rows to the run's next key
  const Index end_;        // number of the run's keys before key_end
  const T factor_;         // factor of the logits
  T* const products_;      // [kBandKeys, lanes, lanes]
  T* const weights_;       // [kBandKeys, lanes]
  T* const scaled_q_;      // [D padded], if N = 0
};
