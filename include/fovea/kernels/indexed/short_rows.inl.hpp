// SPDX-License-Identifier: MIT
/// \file
/// Attention of rows to short contiguous lists of keys, such as those of a predicted graph with
/// none or a few keys. A single row would cost more mispredicted branches than products, so rows
/// are computed together: first the logits of all their entries, regardless of row; then the
/// weights, row by row without branches; then the sums of values.
///
/// A logit has the same bits as in rows.inl.hpp. Weights are summed in the lanes of a cache line,
/// by halving, and divided before the values are summed in one chain. Lists longer than a cache
/// line of weights are computed by rows.inl.hpp. Results do not depend on which rows are computed
/// together.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/indexed/rows.inl.hpp"
#endif

template <Storage S, class T>
class ShortIndexedRows {
 public:
  explicit ShortIndexedRows(const IndexedRowsArgs<T, S>& args)
      : args_(args),
        long_rows_(args),
        factor_(logit_factor(args.scale)),
        padded_(padded_size(args.width)),
        q_(args.scratch + indexed_scratch(args.width, args.lists.length)),
        asked_end_(args.lists.begin[args.first + args.count]) {}

  void run() {
    const Index end = args_.first + args_.count;
    for (Index r = args_.first; r < end;) {
      const Index rows = rows_from(r, end);
      if (rows == 0) {
        long_rows_.process_row(r++);
      } else {
        process_rows(r, rows);
        r += rows;
      }
    }
  }

 private:
  static constexpr Index kMost = kSumLanes<T>;  // the maximum entries of a short row
  static constexpr int kVectors = kSumLanes<T> / kLanes<T>;

  /// The number of rows from r on that are computed together; 0 if row r is long.
  FOVEA_INLINE Index rows_from(Index r, Index end) const {
    const Index* const begin = args_.lists.begin + r;
    const Index most = smaller(end - r, kShortRows);
    Index rows = 0;
    while (rows < most && begin[rows + 1] - begin[rows] <= kMost &&
           begin[rows + 1] - begin[0] <= kShortEntries) {
      ++rows;
    }
    return rows;
  }

  FOVEA_INLINE void process_rows(Index first, Index rows) {
    const Index* const begin = args_.lists.begin + first;
    const Index entries = begin[rows] - begin[0];
    for (Index i = 0; i < rows; ++i) {
      scaled_row<S>(args_.q, first + i, args_.width, factor_, q_ + i * padded_);
      // Places after its entries are overwritten by the following rows.
      FOVEA_UNROLL
      for (Index n = 0; n < kMost; ++n) {
        query_[begin[i] - begin[0] + n] = static_cast<std::int32_t>(i);
      }
    }
    multiply(args_.lists.data + begin[0], entries);
    for (Index i = 0; i < rows; ++i) {
      weigh(first + i, begin[i] - begin[0], begin[i + 1] - begin[i]);
    }
    for (Index i = 0; i < rows; ++i) {
      add_values(first + i, begin[i] - begin[0], begin[i + 1] - begin[i]);
    }
  }

  FOVEA_INLINE void multiply(const Index* list, Index entries) {
    const auto keys = listed_rows<T>(args_.k, args_.width, list, entries);
    const bool is_even = keys.column == 1 && keys.width % kSumLanes<T> == 0;
    switch (is_even ? keys.width / kSumLanes<T> : 0) {
      case 2:
        return multiply<2>(keys);
      case 4:
        return multiply<4>(keys);
      case 8:
        return multiply<8>(keys);
      default:
        return multiply<0>(keys);
    }
  }

  /// Computes the logits of all entries, prefetching later ones.
  template <int kLines>
  FOVEA_NOINLINE void multiply(const ListedRows<T>& keys) {
    constexpr int w = kLanes<T>;
    constexpr int few = w > 4 ? 4 : w;
    Index n = 0;
    for (; n + w <= keys.count; n += w) multiply<kLines, w>(keys, n);
    for (; n < keys.count; n += few) multiply<kLines, few>(keys, n);
  }

  /// Computes the logits of R entries; beyond the last one, that one is repeated.
  template <int kLines, int R>
  FOVEA_INLINE void multiply(const ListedRows<T>& keys, Index n) {
    Vec<T> sums[R];
    FOVEA_UNROLL
    for (int i = 0; i < R; ++i) {
      const Index e = smaller(n + i, keys.count - 1);
      prefetch(keys.list - args_.lists.data + n + i + kShortEntries);
      sums[i] = listed_product<kLines, S>(keys, keys.at(e), q_ + query_[e] * padded_);
    }
    store(logits_ + n, lane_sums(sums));
  }

  /// Prefetches an entry's key and value into the second-level cache, which supports more
  /// outstanding requests.
  FOVEA_INLINE void prefetch(Index entry) const {
    if (entry >= asked_end_) return;
    prefetch_row(args_.k, args_.width, args_.lists.data[entry]);
    prefetch_row(args_.v, args_.value_width, args_.lists.data[entry]);
  }
  static FOVEA_INLINE void prefetch_row(const StoredMatrix<S>& m, Index width, Index row) {
    if (m.column != 1) return;
    constexpr Index bytes = kStoredBytes<S, T>;
    const char* const from = static_cast<const char*>(m.data) + row * m.row * bytes;
    for (Index b = 0; b < width * bytes; b += 64) __builtin_prefetch(from + b, 0, 2);
  }

  /// Computes the weights of the entries [at, at + count) of row r.
  FOVEA_INLINE void weigh(Index r, Index at, Index count) {
    constexpr Index w = kLanes<T>;
    Vec<T> z[kVectors];
    Vec<T> most = set1(kMinusInfinity<T>);
    FOVEA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const IntVec<T> behind = set1_int<T>(static_cast<Int<T>>(count - v * w));
      z[v] = select(lane_index<T>() < behind, load(logits_ + at + v * w), set1(kMinusInfinity<T>));
      most = maximum(most, z[v]);
    }
    most = largest_lane(most);
    const Vec<T> shift = finite_shift(most);
    Vec<T> sums[kVectors];
    FOVEA_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[v] = z[v] = softmax_weight(z[v] - shift);
    const T sum = count > 0 ? total_of_lanes(sums) : T{1};
    const Vec<T> inverse = set1(1 / sum);
    const T* const factors =
        args_.factors == nullptr ? nullptr : args_.factors + args_.lists.place(r);
    FOVEA_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      if (factors != nullptr && v * w < count) z[v] = z[v] * load_up_to(factors, v * w, count);
      store(weights_ + at + v * w, z[v] * inverse);
    }
    if (args_.lse.data != nullptr) {
      args_.lse.data[r * args_.lse.row] =
          count > 0 ? log_sum_exp(most, set1(sum)).raw[0] : kMinusInfinity<T>;
    }
  }

  /// One row of outputs.
  struct Values {
    const IndexedRowsArgs<T, S>& args;
    const T* weights;
    const Index* list;
    Index count;
    Index row;

    /// Computes V vectors of columns, from a vector on.
    template <int V>
    FOVEA_INLINE void run(Index vector) const {
      constexpr Index w = kLanes<T>;
      const Index c = vector * w;
      Vec<T> sum[V];
      FOVEA_UNROLL
      for (int x = 0; x < V; ++x) sum[x] = zero<T>();
      FOVEA_UNROLL_BY(1)
      for (Index n = 0; n < count; ++n) {
        const Vec<T> weight = set1(weights[n]);
        const Index from = list[n] * args.v.row;
        FOVEA_UNROLL
        for (int x = 0; x < V; ++x) sum[x] = fma(value<V>(from, c + x * w), weight, sum[x]);
      }
      FOVEA_UNROLL
      for (int x = 0; x < V; ++x) {
        store_columns<S>(args.out.data, row * args.out.row, args.out.column, c + x * w,
                         args.value_width, sum[x]);
      }
    }

    /// Computes one vector, possibly partial or with strided columns.
    template <int V>
    FOVEA_INLINE Vec<T> value(Index from, Index c) const {
      if constexpr (V == 1) {
        return load_columns<S, T>(args.v.data, from, args.v.column, c, args.value_width);
      }
      return load_stored<S, T>(args.v.data, from + c);
    }
  };

  FOVEA_INLINE void add_values(Index r, Index at, Index count) const {
    constexpr int w = kLanes<T>;
    const Values values{args_, weights_ + at, args_.lists.of(r), count, r};
    const Index vectors = args_.v.column == 1 ? args_.value_width / w : 0;
    for_row_blocks<4>(0, vectors, values);
    for (Index vector = vectors; vector * w < args_.value_width; ++vector) {
      values.template run<1>(vector);
    }
  }

  const IndexedRowsArgs<T, S>& args_;
  const IndexedRows<S, T> long_rows_;
  const T factor_;
  const Index padded_;     // D padded
  T* const q_;             // [kShortRows, D padded], scaled
  const Index asked_end_;  // end of the entries of all rows
  alignas(kVecBytes) T logits_[kShortEntries + kMost];
  alignas(kVecBytes) T weights_[kShortEntries + kMost];
  std::int32_t query_[kShortEntries + kMost];  // for each entry its row
};

/// Computes rows of one query head over the keys of their lists.
template <class T, Storage S>
void indexed_rows(const IndexedRowsArgs<T, S>& args) noexcept {
  if (args.lists.begin == nullptr) {
    IndexedRows<S, T>(args).run();
  } else {
    ShortIndexedRows<S, T>(args).run();
  }
}
