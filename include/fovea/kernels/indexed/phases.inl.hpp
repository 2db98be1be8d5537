// SPDX-License-Identifier: MIT
/// \file
/// Attention to gathered keys in phases, for heads whose keys and values exceed the near caches. A
/// phase reads a contiguous copy of rows, to use few pages and avoid cache-set conflicts.
///
/// The entries of many rows with keys in one block are gathered, and their logits computed
/// regardless of row; so no branch depends on their number per row, and later keys are prefetched
/// meanwhile. Values are summed in column slices. Logits, weights and outputs use the same
/// sequences of operations as in rows.inl.hpp.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/indexed/phases.hpp"
#include "fovea/kernels/indexed/rows.inl.hpp"
#endif

/// Copies rows of a matrix, prefetching later ones.
template <class T>
void indexed_pack(const IndexedPackArgs<T>& args) noexcept {
  constexpr Index ahead = 16;  // rows
  constexpr Index line = kSumLanes<T>;
  const T* const from = static_cast<const T*>(args.from.data);
  for (Index r = args.first; r < args.first + args.count; ++r) {
    if (args.from.column == 1 && r + ahead < args.first + args.count) {
      const T* const later = from + (r + ahead) * args.from.row;
      for (Index c = 0; c < args.columns; c += line) __builtin_prefetch(later + c, 0, 3);
    }
    for (Index c = 0; c < args.columns; c += args.slice) {
      T* const to = args.to + c * args.to_rows + r * args.slice;
      for (Index x = 0; x < args.slice; x += kLanes<T>) {
        Vec<T> y = zero<T>();
        if (c + x < args.columns) {
          y = load_columns<Storage::native, T>(from, r * args.from.row, args.from.column, c + x,
                                               args.columns);
        }
        store(to + x, y);
      }
    }
  }
}

template <class T>
class IndexedLogits {
 public:
  explicit IndexedLogits(const IndexedLogitsArgs<T>& args)
      : args_(args),
        factor_(logit_factor(args.scale)),
        padded_(padded_size(args.width)),
        q_(args.scratch),
        logits_(q_ + kPhaseRows * padded_),
        keys_(reinterpret_cast<Int<T>*>(logits_ + indexed_phase_entries(args.lists.length))),
        queries_(keys_ + indexed_phase_entries(args.lists.length)) {}

  void run() {
    const Index end = args_.first + args_.count;
    if (args_.key_first == 0) {
      for (Index r = args_.first; r < end; ++r) copy_list(r);
    }
    for (Index r = args_.first; r < end;) {
      Index rows = 0;
      Index entries = 0;
      for (; rows < kPhaseRows && r + rows < end && entries < kPhaseEntries; ++rows) {
        begin_[rows] = entries;
        entries = gather(r + rows, rows, entries);
      }
      begin_[rows] = entries;
      multiply(entries);
      if (args_.key_first == 0 && args_.is_last) {
        for (Index i = 0; i < rows; ++i) weigh(r + i, logits_ + begin_[i]);
      } else {
        for (Index i = 0; i < rows; ++i) keep(r + i, i);
        for (Index i = 0; args_.is_last && i < rows; ++i) {
          weigh(r + i, args_.entries.weights + place(r + i));
        }
      }
      r += rows;
    }
  }

 private:
  /// The first of row r's places among the passed entries.
  FOVEA_INLINE Index place(Index r) const { return (r - args_.first) * args_.entries.row; }

  /// Copies row r's visible keys, followed by an invalid key number.
  FOVEA_INLINE void copy_list(Index r) const {
    constexpr Int<T> none = (std::numeric_limits<Int<T>>::max)();
    const KeyLists& lists = args_.lists;
    const Index seen = lists.visible(r);
    const Index* const list = lists.of(r);
    Int<T>* const to = args_.entries.keys + place(r);
    if (lists.step == 1) {
      for (Index n = 0; n < seen; ++n) to[n] = static_cast<Int<T>>(list[n]);
    } else {
      for (Index n = 0; n < seen; ++n) to[n] = static_cast<Int<T>>(list[n * lists.step]);
    }
    store_int<T>(to + seen, set1_int<T>(none));
    args_.entries.counts[r - args_.first] = static_cast<Int<T>>(seen);
    args_.entries.computed[r - args_.first] = 0;
  }

  /// Appends row r's entries in the block, and scales its query.
  FOVEA_INLINE Index gather(Index r, Index i, Index entries) {
    constexpr Index ahead = 12;  // rows
    constexpr int w = kLanes<T>;
    if (args_.q.column == 1 && r + ahead < args_.first + args_.count) {
      const T* const later = static_cast<const T*>(args_.q.data) + (r + ahead) * args_.q.row;
      for (Index c = 0; c < args_.width; c += kSumLanes<T>) __builtin_prefetch(later + c, 0, 3);
    }
    scaled_row<Storage::native>(args_.q, r, args_.width, factor_, q_ + i * padded_);
    const IntVec<T> end = set1_int<T>(static_cast<Int<T>>(args_.key_end));
    const IntVec<T> first = set1_int<T>(static_cast<Int<T>>(args_.key_first));
    const IntVec<T> query = set1_int<T>(static_cast<Int<T>>(i * padded_));
    const Int<T>* from = args_.entries.keys + place(r) + args_.entries.computed[r - args_.first];
    Index count = w;
    while (count == w) {  // Keys ascend: those of the block are the first ones.
      const IntVec<T> keys = load_int<T>(from);
      count = bit_count(mask_bits<T>(keys < end));
      store_int<T>(keys_ + entries, keys - first);
      store_int<T>(queries_ + entries, query);
      entries += count;
      from += count;
    }
    return entries;
  }

  void multiply(Index entries) {
    switch (padded_ / kSumLanes<T>) {
      case 2:
        return multiply<2>(entries);
      case 4:
        return multiply<4>(entries);
      case 8:
        return multiply<8>(entries);
      default:
        return multiply<0>(entries);
    }
  }

  /// Computes the logits of the entries, prefetching later keys. It also computes some entries
  /// after the last one, which are set to an existing key.
  template <int kLines>
  FOVEA_NOINLINE void multiply(Index entries) {
    constexpr int w = kLanes<T>;
    for (Index n = entries; n < entries + kPhaseAhead + w; ++n) keys_[n] = queries_[n] = 0;
    const Index row = args_.keys_row;
    const ListedRows<T> keys{args_.keys, row, 1, padded_, nullptr, 0};
    for (Index n = 0; n < entries; n += w) {
      if (args_.ahead) {
        FOVEA_UNROLL
        for (int i = 0; i < w; ++i) prefetch<kLines>(keys_[n + i + kPhaseAhead]);
      }
      Vec<T> sums[w];
      FOVEA_UNROLL
      for (int i = 0; i < w; ++i) {
        sums[i] = listed_product<kLines, Storage::native>(keys, Index{keys_[n + i]} * row,
                                                          q_ + queries_[n + i]);
      }
      store(logits_ + n, lane_sums(sums));
    }
  }

  /// Prefetches a key of the block into the second-level cache, which supports more outstanding
  /// requests.
  template <int kLines>
  FOVEA_INLINE void prefetch(Int<T> key) const {
    const T* const row = args_.keys + Index{key} * args_.keys_row;
    if constexpr (kLines > 0) {
      FOVEA_UNROLL
      for (int line = 0; line < kLines; ++line) {
        __builtin_prefetch(row + line * kSumLanes<T>, 0, 2);
      }
    } else {
      for (Index c = 0; c < padded_; c += kSumLanes<T>) __builtin_prefetch(row + c, 0, 2);
    }
  }

  /// Copies row r's logits to the passed entries, in whole vectors: later logits are not there yet.
  FOVEA_INLINE void keep(Index r, Index i) const {
    const Index count = begin_[i + 1] - begin_[i];
    const Index before = args_.entries.computed[r - args_.first];
    T* const to = args_.entries.weights + place(r) + before;
    for (Index n = 0; n < count; n += kLanes<T>) store(to + n, load(logits_ + begin_[i] + n));
    args_.entries.computed[r - args_.first] = static_cast<Int<T>>(before + count);
  }

  /// Turns row r's logits into weights. They may be followed by other rows' logits.
  FOVEA_INLINE void weigh(Index r, const T* logits) const {
    const Index seen = args_.entries.counts[r - args_.first];
    T* const weights = args_.entries.weights + place(r);
    T sum = 1;
    T lse = kMinusInfinity<T>;
    if (seen > 0) {
      Vec<T> most = set1(kMinusInfinity<T>);
      for (Index n = 0; n < seen; n += kLanes<T>) {
        const IntVec<T> behind = set1_int<T>(static_cast<Int<T>>(seen - n));
        most = maximum(most, select(lane_index<T>() < behind, load(logits + n), most));
      }
      most = largest_lane(most);
      const Vec<T> shift = finite_shift(most);
      for (Index n = 0; n < seen; n += kLanes<T>) {
        store(weights + n, softmax_weight(load(logits + n) - shift));
      }
      sum = sum_of_list(weights, seen);
      if (args_.lse.data != nullptr) lse = log_sum_exp(most, set1(sum)).raw[0];
    }
    args_.entries.inverses[r - args_.first] = 1 / sum;
    if (args_.lse.data != nullptr) args_.lse.data[r * args_.lse.row] = lse;
  }

  const IndexedLogitsArgs<T>& args_;
  const T factor_;
  const Index padded_;           // D padded
  T* const q_;                   // [kPhaseRows, D padded], scaled
  T* const logits_;              // of the gathered entries
  Int<T>* const keys_;           // for each its key, relative to the block
  Int<T>* const queries_;        // for each its query's offset
  Index begin_[kPhaseRows + 1];  // for each row its first entry
};

/// Computes the logits of some rows for a block of keys.
template <class T>
void indexed_logits(const IndexedLogitsArgs<T>& args) noexcept {
  IndexedLogits<T>(args).run();
}

/// Sums a slice of the values of some rows.
template <class T>
void indexed_values(const IndexedValuesArgs<T>& args) noexcept {
  const IndexedEntries<T>& entries = args.entries;
  OutputMatrix<> to = args.out;
  to.data = static_cast<T*>(to.data) + args.column * to.column;
  const Index width = smaller(args.slice, args.width - args.column);
  for (Index i = 0; i < args.count; ++i) {
    const ListedRows<T, KeyNumber<T>> rows{args.values,
                                           args.slice,
                                           1,
                                           width,
                                           entries.keys + i * entries.row,
                                           Index{entries.counts[i]}};
    weighted_row<Storage::native>(rows, entries.weights + i * entries.row, entries.inverses[i], to,
                                  args.first + i);
  }
}
