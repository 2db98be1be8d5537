// SPDX-License-Identifier: MIT
/// \file
/// Attention to gathered keys: the softmax of a row's logits for its own keys, optionally
/// multiplied by a factor per entry, and the weighted sum of their values. Cost for each pair: 2
/// (D + Dv) flops and D + Dv loads, since every pair has its own rows of K and V.
///
/// A logit is summed in the lanes of a cache line, columns c, c + kSumLanes, ... in one chain, and
/// then by a halving tree. An output element is a sum over reduction blocks of kReductionBlock
/// entries, with two chains for even and odd entries. The sum of weights uses the same order, so
/// that weights sum to 1. Results do not depend on other rows, or on invisible entries.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/indexed/rows.hpp"
#include "fovea/simd/lane_sums.inl.hpp"
#include "fovea/simd/register_block.inl.hpp"
#include "fovea/simd/softmax_weight.inl.hpp"
#include "fovea/simd/stored_rows.inl.hpp"
#endif

/// The rows of a matrix selected by a list.
/// \tparam KeyOf the integers of the list
template <class T, class KeyOf = Index>
struct ListedRows {
  const void* data;
  Index row;
  Index column;
  Index width;
  const KeyOf* list;
  Index count;

  /// The place of entry n's row in the matrix.
  FOVEA_INLINE Index at(Index n) const { return Index{list[n]} * row; }
};

template <class T, Storage S>
FOVEA_INLINE ListedRows<T> listed_rows(const StoredMatrix<S>& m, Index width, const Index* list,
                                       Index count) {
  return {m.data, m.row, m.column, width, list, count};
}

/// The product of a row of a matrix with x, as partial sums in lanes.
/// \param x is padded with zeros to a multiple of kSumLanes
/// \tparam kLines width / kSumLanes at unit columns; 0: any width and columns
template <int kLines, Storage S, class T>
FOVEA_INLINE Vec<T> listed_product(const ListedRows<T>& rows, Index at, const T* x) {
  constexpr Index w = kLanes<T>;
  constexpr int vectors = kSumLanes<T> / w;
  Vec<T> sum[vectors];
  FOVEA_UNROLL
  for (int v = 0; v < vectors; ++v) sum[v] = zero<T>();
  if constexpr (kLines > 0) {
    FOVEA_UNROLL
    for (int c = 0; c < kLines * vectors; ++c) {
      const Vec<T> y = load_stored<S, T>(rows.data, at + c * w);
      sum[c % vectors] = fma(y, load(x + c * w), sum[c % vectors]);
    }
  } else {
    for (Index c = 0; c < rows.width; c += kSumLanes<T>) {
      FOVEA_UNROLL
      for (int v = 0; v < vectors; ++v) {
        const Index from = c + v * w;
        Vec<T> y = zero<T>();
        if (from < rows.width) {
          y = load_columns<S, T>(rows.data, at, rows.column, from, rows.width);
        }
        sum[v] = fma(y, load(x + from), sum[v]);
      }
    }
  }
  return halves_added(sum);
}

/// Writes to[n] = the product of x with the row of entry n, padded by `beyond` to a whole vector.
/// It keeps the largest in lanes. Meanwhile it prefetches the rows of the list `later`, at unit
/// columns, if it has entries.
template <int kLines, Storage S, class T>
struct ListedProducts {
  const ListedRows<T>& rows;
  const T* x;
  T beyond;
  T* to;  // [count padded]
  const ListedRows<T>& later;
  Vec<T> most;

  FOVEA_NOINLINE void run() {
    constexpr int w = kLanes<T>;
    Index n = 0;
    for (; n + w <= rows.count; n += w) whole(n);
    if (n < rows.count) rest_of<(w > 4 ? 4 : w)>(n);
  }

 private:
  /// Computes as many entries as there are lanes.
  FOVEA_INLINE void whole(Index n) {
    prefetch<kLanes<T>>(n);
    Vec<T> sums[kLanes<T>];
    FOVEA_UNROLL
    for (int i = 0; i < kLanes<T>; ++i) {
      sums[i] = listed_product<kLines, S>(rows, rows.at(n + i), x);
    }
    keep(n, lane_sums(sums));
  }

  /// Computes the entries from n on, with the smallest block size, from R on, that holds them.
  template <int R>
  FOVEA_INLINE void rest_of(Index n) {
    if constexpr (R < kLanes<T>) {
      if (n + R < rows.count) return rest_of<2 * R>(n);
    }
    rest<R>(n);
  }

  /// Computes at most R entries; beyond the list's last entry, that one is repeated.
  template <int R>
  FOVEA_INLINE void rest(Index n) {
    prefetch<R>(n);
    Vec<T> sums[R];
    FOVEA_UNROLL
    for (int i = 0; i < R; ++i) {
      sums[i] = listed_product<kLines, S>(rows, rows.at(smaller(n + i, rows.count - 1)), x);
    }
    const auto count = static_cast<Int<T>>(rows.count - n);
    keep(n, select(lane_index<T>() < set1_int<T>(count), lane_sums(sums), set1(beyond)));
  }

  /// Prefetches R later rows, each as wide as those multiplied, into the second-level cache, which
  /// supports more outstanding requests. Beyond the last one, that one is repeated: fewer branches.
  template <int R>
  FOVEA_INLINE void prefetch(Index n) const {
    constexpr Index bytes = kStoredBytes<S, T>;
    if (later.count == 0) return;
    FOVEA_UNROLL
    for (int i = 0; i < R; ++i) {
      const char* const row =
          static_cast<const char*>(later.data) + later.at(smaller(n + i, later.count - 1)) * bytes;
      if constexpr (kLines > 0) {
        FOVEA_UNROLL
        for (Index b = 0; b < kLines * kSumLanes<T> * bytes; b += 64) {
          __builtin_prefetch(row + b, 0, 2);
        }
      } else {
        for (Index b = 0; b < rows.width * bytes; b += 64) __builtin_prefetch(row + b, 0, 2);
      }
    }
  }

  FOVEA_INLINE void keep(Index n, Vec<T> products) {
    most = maximum(most, products);
    store(to + n, products);
  }
};

/// Writes to[n] of every entry, and returns the largest in lanes.
/// \param to [count padded]
/// \param later rows to prefetch
template <Storage S, class T>
FOVEA_INLINE Vec<T> listed_products(const ListedRows<T>& rows, const T* x, T beyond, T* to,
                                    const ListedRows<T>& later = {}) {
  const Vec<T> none = set1(kMinusInfinity<T>);
  const bool is_even = rows.column == 1 && rows.width % kSumLanes<T> == 0;
  switch (is_even ? rows.width / kSumLanes<T> : 0) {
    case 2: {
      ListedProducts<2, S, T> products{rows, x, beyond, to, later, none};
      products.run();
      return products.most;
    }
    case 4: {
      ListedProducts<4, S, T> products{rows, x, beyond, to, later, none};
      products.run();
      return products.most;
    }
    case 8: {
      ListedProducts<8, S, T> products{rows, x, beyond, to, later, none};
      products.run();
      return products.most;
    }
    default: {
      ListedProducts<0, S, T> products{rows, x, beyond, to, later, none};
      products.run();
      return products.most;
    }
  }
}

/// Listed rows with weights.
template <class T, class KeyOf = Index>
struct WeightedList : ListedRows<T, KeyOf> {
  const T* weights;

  FOVEA_INLINE T weight(Index n) const { return weights[n]; }
  template <int V>
  FOVEA_INLINE void prefetch(Index /*n*/, Index /*c*/) const {}
};

/// A single list, for WeightedRows, which takes several.
template <class T, class KeyOf = Index>
struct SingleList {
  using List = WeightedList<T, KeyOf>;

  List list;

  FOVEA_INLINE Index count() const { return 1; }
  FOVEA_INLINE List operator[](Index /*i*/) const { return list; }
};

/// One row of outputs: factor sum_n weight_n row_n, over some lists, in order.
template <class Lists, Storage S, class T>
struct WeightedRows {
  using List = typename Lists::List;

  const Lists& lists;
  Index width;
  bool whole;  // whether the rows of all lists are at unit columns
  T factor;
  void* to;
  Index at;  // place of the row of outputs
  Index column;

  /// Computes V vectors of columns, from a vector on.
  template <int V>
  FOVEA_INLINE void run(Index vector) const {
    constexpr Index w = kLanes<T>;
    const Index c = vector * w;
    Vec<T> sum[V];
    FOVEA_UNROLL
    for (int x = 0; x < V; ++x) sum[x] = zero<T>();
    for (Index i = 0; i < lists.count(); ++i) {
      const List list = lists[i];
      for (Index n = 0; n < list.count; n += kReductionBlock) {
        add(list, n, smaller(n + kReductionBlock, list.count), c, sum);
      }
    }
    FOVEA_UNROLL
    for (int x = 0; x < V; ++x) {
      // Without entries it is +0, for any sign of the factor.
      const Vec<T> y = fma(sum[x], set1(factor), zero<T>());
      store_columns<S>(to, at, column, c + x * w, width, y);
    }
  }

  FOVEA_INLINE void all() const {
    constexpr int w = kLanes<T>;
    const Index vectors = whole ? width / w : 0;
    for_row_blocks<4>(0, vectors, *this);
    for (Index vector = vectors; vector * w < width; ++vector) run<1>(vector);
  }

 private:
  /// Computes one vector, possibly partial or with strided columns.
  template <int V>
  static FOVEA_INLINE Vec<T> value(const List& list, Index at, Index c) {
    if constexpr (V == 1) return load_columns<S, T>(list.data, at, list.column, c, list.width);
    return load_stored<S, T>(list.data, at + c);
  }

  template <int V>
  FOVEA_INLINE void add_entry(const List& list, Index n, Index c, Vec<T> (&chain)[V]) const {
    const Vec<T> weight = set1(list.weight(n));
    const Index from = list.at(n);
    list.template prefetch<V>(n, c);
    FOVEA_UNROLL
    for (int x = 0; x < V; ++x) {
      chain[x] = fma(value<V>(list, from, c + x * kLanes<T>), weight, chain[x]);
    }
  }

  /// Adds the reduction blocks of entries [n, end).
  template <int V>
  FOVEA_INLINE void add(const List& list, Index n, Index end, Index c, Vec<T> (&sum)[V]) const {
    Vec<T> even[V];
    Vec<T> odd[V];
    FOVEA_UNROLL
    for (int x = 0; x < V; ++x) even[x] = odd[x] = zero<T>();
    FOVEA_UNROLL_BY(1)
    for (; n + 2 <= end; n += 2) {
      add_entry(list, n, c, even);
      add_entry(list, n + 1, c, odd);
    }
    if (n < end) add_entry(list, n, c, even);
    FOVEA_UNROLL
    for (int x = 0; x < V; ++x) sum[x] = sum[x] + (even[x] + odd[x]);
  }
};

/// Computes the row of outputs of a single list.
template <Storage S, class T, class KeyOf>
FOVEA_INLINE void weighted_row(const ListedRows<T, KeyOf>& rows, const T* weights, T factor,
                               const OutputMatrix<S>& to, Index r) {
  const SingleList<T, KeyOf> list{{rows, weights}};
  WeightedRows<SingleList<T, KeyOf>, S, T>{list,    rows.width, rows.column == 1, factor,
                                           to.data, r * to.row, to.column}
      .all();
}

/// Writes weights[n] = 4^(logit - shift) over the logits.
template <class T>
FOVEA_INLINE void weigh_list(T* logits, Index count, Vec<T> shift) {
  for (Index n = 0; n < count; n += kLanes<T>) {
    store(logits + n, softmax_weight(load(logits + n) - shift));
  }
}

/// The elements [n, n + lanes) of an array of `count` elements, 0 beyond its end.
template <class T>
FOVEA_INLINE Vec<T> load_up_to(const T* x, Index n, Index count) {
  return n + kLanes<T> <= count ? load(x + n) : load_first(x + n, count - n);
}

/// Multiplies weights[n] by factors[n].
/// \param factors [count]; nothing beyond is read
template <class T>
FOVEA_INLINE void scale_list(T* weights, const T* factors, Index count) {
  for (Index n = 0; n < count; n += kLanes<T>) {
    store(weights + n, load(weights + n) * load_up_to(factors, n, count));
  }
}

/// The sum of the weights, in the order of WeightedRows.
template <class T>
FOVEA_INLINE T sum_of_list(const T* weights, Index count) {
  using Pair __attribute__((vector_size(2 * sizeof(T)))) = T;
  using Unaligned __attribute__((vector_size(2 * sizeof(T)), aligned(alignof(T)), may_alias)) = T;
  T sum = 0;
  for (Index n = 0; n < count;) {
    const Index end = smaller(n + kReductionBlock, count);
    Pair chain = {0, 0};
    FOVEA_UNROLL_BY(1)
    for (; n + 2 <= end; n += 2) chain += *reinterpret_cast<const Unaligned*>(weights + n);
    if (n < end) chain[0] += weights[n++];
    sum += chain[0] + chain[1];
  }
  return sum;
}

/// Copies a row to scratch, multiplied by a factor, padded with zeros to a multiple of kSumLanes.
template <Storage S, class T>
FOVEA_INLINE void scaled_row(const StoredMatrix<S>& m, Index row, Index width, T factor, T* to) {
  for (Index c = 0; c < padded_size(width); c += kLanes<T>) {
    Vec<T> x = zero<T>();
    if (c < width) x = load_columns<S, T>(m.data, row * m.row, m.column, c, width);
    store(to + c, x * set1(factor));
  }
}

/// The visible entries of row r, contiguous: in place, or copied.
FOVEA_INLINE const Index* unit_list(const KeyLists& lists, Index r, Index seen, Index* copy) {
  const Index* const list = lists.of(r);
  if (lists.step == 1) return list;
  for (Index n = 0; n < seen; ++n) copy[n] = list[n * lists.step];
  return copy;
}

/// Prefetches the rows of a matrix selected by a list into the second-level cache, which supports
/// more outstanding requests.
template <class T, Storage S>
FOVEA_INLINE void prefetch_listed(const StoredMatrix<S>& m, Index width, const KeyLists& lists,
                                  Index r) {
  if (m.column != 1) return;
  constexpr Index bytes = kStoredBytes<S, T>;
  const Index* const list = lists.of(r);
  const Index most = lists.begin == nullptr ? lists.length : lists.visible(r);
  for (Index n = 0; n < most && list[n * lists.step] >= 0; ++n) {
    const Index row = list[n * lists.step] * m.row * bytes;
    for (Index b = 0; b < width * bytes; b += 64) {
      __builtin_prefetch(static_cast<const char*>(m.data) + row + b, 0, 2);
    }
  }
}

template <Storage S, class T>
class IndexedRows {
 public:
  explicit IndexedRows(const IndexedRowsArgs<T, S>& args)
      : args_(args),
        factor_(logit_factor(args.scale)),
        q_(args.scratch),
        weights_(args.scratch + padded_size(args.width)),
        list_(reinterpret_cast<Index*>(weights_ + padded_size(args.lists.length))) {}

  void run() const {
    for (Index r = args_.first; r < args_.first + args_.count; ++r) process_row(r);
  }

  void process_row(Index r) const {
    const Index seen = args_.lists.visible(r);
    const Index* const list = unit_list(args_.lists, r, seen, list_);
    const bool ahead = args_.ahead && r + 1 < args_.first + args_.count;
    if (ahead) prefetch_listed<T>(args_.k, args_.width, args_.lists, r + 1);
    T sum = 1;
    T lse = kMinusInfinity<T>;
    if (seen > 0) {
      scaled_row<S>(args_.q, r, args_.width, factor_, q_);
      const auto keys = listed_rows<T>(args_.k, args_.width, list, seen);
      const Vec<T> most = largest_lane(listed_products<S>(keys, q_, kMinusInfinity<T>, weights_));
      weigh_list(weights_, seen, finite_shift(most));
      sum = sum_of_list(weights_, seen);
      if (args_.factors != nullptr) {
        scale_list(weights_, args_.factors + args_.lists.place(r), seen);
      }
      if (args_.lse.data != nullptr) lse = log_sum_exp(most, set1(sum)).raw[0];
    }
    if (ahead) prefetch_listed<T>(args_.v, args_.value_width, args_.lists, r + 1);
    weighted_row<S>(listed_rows<T>(args_.v, args_.value_width, list, seen), weights_, 1 / sum,
                    args_.out, r);
    if (args_.lse.data != nullptr) args_.lse.data[r * args_.lse.row] = lse;
  }

 private:
  const IndexedRowsArgs<T, S>& args_;
  const T factor_;
  T* const q_;         // [D padded], scaled
  T* const weights_;   // [K padded]
  Index* const list_;  // [K]
};
