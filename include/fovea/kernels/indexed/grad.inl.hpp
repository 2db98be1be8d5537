// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of attention to gathered keys. By rows, weights P = exp(s - lse) are
/// recomputed; with the factor f of an entry, dS = P (f <d_out, v> - <d_out, out>), df = P <d_out,
/// v>, and dq = scale sum_j dS_j k_j. By keys, over the rows that list them, dv = sum_i P_i f_i
/// d_out_i and dk = scale sum_i dS_i q_i, in the order of heads and rows. Cost: 2 (3 D + 2 Dv)
/// flops for each pair.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/indexed/rows.inl.hpp"
#endif

template <class T>
class IndexedGradRows {
 public:
  explicit IndexedGradRows(const IndexedGradRowsArgs<T>& args)
      : args_(args),
        factor_(logit_factor(args.scale)),
        q_(args.scratch),
        d_out_(q_ + padded_size(args.width)),
        weights_(d_out_ + padded_size(args.value_width)),
        d_logits_(weights_ + padded_size(args.lists.length)),
        list_(reinterpret_cast<Index*>(d_logits_ + padded_size(args.lists.length))) {}

  void run() const {
    const Index end = args_.first + args_.count;
    if (args_.find_lse_low.data != nullptr) {
      for (Index r = args_.first; r < end; ++r) find_lse_low(r);
      return;
    }
    Index seen = args_.count > 0 ? args_.lists.visible(args_.first) : 0;
    for (Index r = args_.first; r < end; ++r) {
      const Index later = r + 1 < end ? args_.lists.visible(r + 1) : 0;
      process_row(r, seen, later);
      seen = later;
    }
  }

 private:
  static constexpr Storage kNative = Storage::native;

  /// \param later the number of visible entries of row r + 1
  void process_row(Index r, Index seen, Index later) const {
    const Index* const list = unit_list(args_.lists, r, seen, list_);
    const auto keys = listed_rows<T>(stored(args_.k), args_.width, list, seen);
    if (seen > 0) {
      scaled_row<kNative>(stored(args_.q), r, args_.width, factor_, q_);
      const Vec<T> most = largest_lane(
          listed_products<kNative>(keys, q_, kMinusInfinity<T>, weights_,
                                   later_rows(args_.v, args_.value_width, list, seen)));
      weigh(r, most, seen);
      if (args_.d_q.data != nullptr || args_.keeps_logits || args_.d_factors != nullptr) {
        weigh_gradients(r, list, seen, later);
      }
      if (args_.factors != nullptr) scale_list(weights_, factors_of(r), seen);
      if (args_.entries != nullptr) {
        prefetch_entries(r + 1, later);
        keep_entries(r, list, seen);
      }
    }
    if (args_.d_q.data != nullptr) {
      weighted_row<kNative>(keys, d_logits_, args_.scale, output(args_.d_q), r);
    }
  }

  FOVEA_INLINE T lse(Index r) const { return args_.lse.data[r * args_.lse.row]; }
  FOVEA_INLINE bool is_large(T lse) const { return lse < -kLargeLse || kLargeLse < lse; }

  /// Writes the low part of the lse of row r: +0 if it is not large.
  FOVEA_NOINLINE void find_lse_low(Index r) const {
    T& to = args_.find_lse_low.data[r * args_.find_lse_low.row];
    to = 0;
    const Index seen = args_.lists.visible(r);
    if (seen == 0 || !is_large(lse(r))) return;
    const Index* const list = unit_list(args_.lists, r, seen, list_);
    scaled_row<kNative>(stored(args_.q), r, args_.width, factor_, q_);
    const Vec<T> most = largest_lane(listed_products<kNative>(
        listed_rows<T>(stored(args_.k), args_.width, list, seen), q_, kMinusInfinity<T>, weights_));
    store_first(&to, low_part(r, most, seen), 1);
  }

  /// The low part of a large lse of a row, from all its logits, which are in weights_.
  FOVEA_INLINE Vec<T> low_part(Index r, Vec<T> most, Index seen) const {
    for (Index n = 0; n < seen; n += kLanes<T>) store(d_logits_ + n, load(weights_ + n));
    weigh_list(d_logits_, seen, finite_shift(most));
    return lse_low_part(set1(lse(r)), most, set1(sum_of_list(d_logits_, seen)));
  }

  /// Computes the weights from a row's logits, of which `most` is the largest. A large lse needs
  /// its low part.
  FOVEA_INLINE void weigh(Index r, Vec<T> most, Index seen) const {
    Vec<T> low = zero<T>();
    if (is_large(lse(r))) {
      low = args_.lse_low.data == nullptr ? low_part(r, most, seen)
                                          : set1(args_.lse_low.data[r * args_.lse_low.row]);
    }
    const Vec<T> shift = lse_shift(set1(lse(r)));
    for (Index n = 0; n < seen; n += kLanes<T>) {
      store(weights_ + n, softmax_weight((load(weights_ + n) - shift) - low));
    }
  }

  /// Computes the gradients of the logits of row r.
  FOVEA_INLINE void weigh_gradients(Index r, const Index* list, Index seen, Index later) const {
    const Index width = args_.value_width;
    scaled_row<kNative>(stored(args_.d_out), r, width, T{1}, d_out_);
    const auto out = listed_rows<T>(stored(args_.out), width, &r, 1);
    const Vec<T> delta = set1(sum_of_lanes(listed_product<0, kNative>(out, out.at(0), d_out_)));
    listed_products<kNative>(listed_rows<T>(stored(args_.v), width, list, seen), d_out_, T{0},
                             d_logits_,
                             later_rows(args_.k, args_.width, args_.lists.of(r + 1), later));
    if (args_.factors == nullptr) {
      for (Index n = 0; n < seen; n += kLanes<T>) {
        store(d_logits_ + n, load(weights_ + n) * (load(d_logits_ + n) - delta));
      }
      return;
    }
    for (Index n = 0; n < seen; n += kLanes<T>) {
      const Vec<T> weight = load(weights_ + n);
      const Vec<T> d_weight = load(d_logits_ + n);
      if (args_.d_factors != nullptr) {
        keep(weight * d_weight, n, seen, args_.d_factors + args_.lists.place(r));
      }
      const Vec<T> factor = load_up_to(factors_of(r), n, seen);
      store(d_logits_ + n, weight * fma(factor, d_weight, zero<T>() - delta));
    }
  }

  /// Rows to prefetch: none if lists or columns are strided.
  FOVEA_INLINE ListedRows<T> later_rows(const Matrix<const T>& m, Index width, const Index* list,
                                        Index count) const {
    return listed_rows<T>(stored(m), width, list,
                          m.column == 1 && args_.lists.step == 1 ? count : 0);
  }

  FOVEA_INLINE const T* factors_of(Index r) const { return args_.factors + args_.lists.place(r); }

  /// Writes the entries of row r.
  FOVEA_INLINE void keep_entries(Index r, const Index* list, Index seen) const {
    for (Index n = 0; n < seen; ++n) {
      args_.entries[args_.next[list[n]]++] = {r, weights_[n], d_logits_[n]};
    }
  }
  /// Prefetches the places of the entries of row r.
  FOVEA_INLINE void prefetch_entries(Index r, Index seen) const {
    const Index* const list = args_.lists.of(r);
    for (Index n = 0; n < seen; ++n) {
      __builtin_prefetch(args_.entries + args_.next[list[n * args_.lists.step]], 1, 2);
    }
  }

  /// Writes the elements [n, n + lanes) of a list of `seen` entries.
  FOVEA_INLINE void keep(Vec<T> x, Index n, Index seen, T* to) const {
    if (n + kLanes<T> <= seen) {
      store(to + n, x);
    } else {
      store_first(to + n, x, seen - n);
    }
  }

  const IndexedGradRowsArgs<T>& args_;
  const T factor_;
  T* const q_;         // [D padded], scaled
  T* const d_out_;     // [Dv padded]
  T* const weights_;   // [K padded]
  T* const d_logits_;  // [K padded]
  Index* const list_;  // [K]
};

/// The backward pass of rows of one query head.
template <class T>
void indexed_grad_rows(const IndexedGradRowsArgs<T>& args) noexcept {
  IndexedGradRows<T>(args).run();
}

/// The rows that list one key, with their weights or the gradients of their logits.
template <bool kOfValues, class T>
struct EntriesOfKey {
  const void* data;
  Index row;
  Index column;
  Index width;
  const KeyEntry<T>* entries;
  Index count;
  Index last;  // the last entry of the head

  static constexpr Index kAhead = 16;

  FOVEA_INLINE T weight(Index n) const {
    return kOfValues ? entries[n].weight : entries[n].d_logit;
  }
  FOVEA_INLINE Index at(Index n) const { return entries[n].row * row; }
  /// Prefetches V vectors of columns of a later entry, which may be another key's.
  template <int V>
  FOVEA_INLINE void prefetch(Index n, Index c) const {
    constexpr Index bytes = V * kVecBytes;
    const auto* const from =
        static_cast<const T*>(data) + at(smaller(n + kAhead, last)) + c * column;
    FOVEA_UNROLL
    for (Index b = 0; b < bytes; b += 64) {
      __builtin_prefetch(reinterpret_cast<const char*>(from) + b, 0, 2);
    }
  }
};

/// The entries of one key, head by head.
template <bool kOfValues, class T>
struct HeadsOfKey {
  using List = EntriesOfKey<kOfValues, T>;

  const IndexedGradKeysArgs<T>& args;
  Index key;

  FOVEA_INLINE Index count() const { return args.head_count; }
  FOVEA_INLINE List operator[](Index i) const {
    const IndexedGradHead<T>& head = args.heads[i];
    const Index begin = head.begin[key];
    const Matrix<const T>& m = kOfValues ? head.d_out : head.q;
    return {m.data,
            m.row,
            m.column,
            kOfValues ? args.value_width : args.width,
            head.entries + begin,
            head.begin[key + 1] - begin,
            head.begin[args.keys] - 1 - begin};
  }
};

template <bool kOfValues, class T>
void indexed_grad_key(const IndexedGradKeysArgs<T>& args, Index key) {
  const HeadsOfKey<kOfValues, T> heads{args, key};
  const Matrix<T>& to = kOfValues ? args.d_v : args.d_k;
  bool whole = true;
  for (Index i = 0; i < args.head_count; ++i) {
    whole = whole && (kOfValues ? args.heads[i].d_out : args.heads[i].q).column == 1;
  }
  WeightedRows<HeadsOfKey<kOfValues, T>, Storage::native, T>{
      heads,    kOfValues ? args.value_width : args.width,
      whole,    kOfValues ? T{1} : args.scale,
      to.data,  key * to.row,
      to.column}
      .all();
}

/// Computes the gradients of some keys and values.
template <class T>
void indexed_grad_keys(const IndexedGradKeysArgs<T>& args) noexcept {
  for (Index key = args.first; key < args.first + args.count; ++key) {
    if (args.d_v.data != nullptr) indexed_grad_key<true>(args, key);
    if (args.d_k.data != nullptr) indexed_grad_key<false>(args, key);
  }
}
