// SPDX-License-Identifier: MIT
/// \file
/// Softmax attention of a block of queries over a list of key runs, forward: the running softmax
/// of Milakov and Gimelshein 2018 with queries in the lanes. Cost 2 (D + Dv) flops per computed
/// pair; scratch O(rows (D + Dv)). Oracle tests/support/oracle/softmax.hpp, test
/// tests/attention/conformance_test.cpp.

/// The keys of one run that a sub-block of queries sees: all of its queries see those of
/// [full_begin, full_end), some those of [begin, end).
struct SeenKeys {
  Index begin;
  Index full_begin;
  Index full_end;
  Index end;
};

/// A running softmax: per query the largest logit, the sum of weights relative to it, and the
/// weighted sum of values.
template <class T>
struct RunningSoftmax {
  T* max;  // [queries]
  T* sum;  // [queries]
  T* acc;  // [sub-blocks, Dv padded, V * lanes]
};

/// One call: a block of queries, cut into sub-blocks of V vectors.
template <int V, class T>
class SoftmaxBlock {
 public:
  explicit SoftmaxBlock(const SoftmaxBlockArgs<T>& args) : args_(args) {
    const Index queries = sub_blocks() * kQueries;
    const Index acc = queries * padded(args.value_width);
    queries_ = args.scratch;
    part_.acc = queries_ + queries * padded(args.width);
    total_.acc = part_.acc + acc;
    part_.max = total_.acc + acc;
    part_.sum = part_.max + queries;
    total_.max = part_.sum + queries;
    total_.sum = total_.max + queries;
    weights_ = total_.sum + queries;
    packed_k_ = weights_ + kKeyTile * kQueries;
    packed_v_ = packed_k_ + kKeyTile * padded(args.width);
  }

  void run() {
    for (Index r = 0; r < args_.block.run_count; ++r) attend(args_.block.runs[r]);
    for (Index sub = 0; sub < sub_blocks(); ++sub) finish(sub);
  }

 private:
  static constexpr int kQueries = V * kLanes<T>;
  static constexpr Index kMostSubBlocks = kMaxBlockRows / kLanes<T>;

  static Index padded(Index width) { return (width + 15) / 16 * 16; }
  Index sub_blocks() const { return (args_.block.count + kQueries - 1) / kQueries; }
  Index sub_rows(Index sub) const { return smaller(kQueries, args_.block.count - sub * kQueries); }
  Index position(Index row) const { return args_.block.first + args_.block.step * row; }
  Index row(Index sub) const { return position(sub * kQueries); }
  T* queries(Index sub) { return queries_ + sub * padded(args_.width) * kQueries; }
  T* acc(const RunningSoftmax<T>& state, Index sub) {
    return state.acc + sub * padded(args_.value_width) * kQueries;
  }

  /// A sub-block is begun at its first tile and finished after its last, so that the memory of
  /// its neighbours' queries and outputs is waited for while it computes.
  void begin(Index sub) {
    if (progress_[sub] != Progress::none) return;
    progress_[sub] = Progress::begun;
    prefetch(sub);
    const T factor = logit_factor(args_.scale);
    rows_to_lanes(args_.q.data + row(sub) * args_.q.row, args_.block.step * args_.q.row,
                  args_.q.column, sub_rows(sub), args_.width, factor, queries(sub), kQueries);
    clear(part_, sub);
  }

  /// Asks for the queries of the next sub-block and the output rows of this one.
  FOVEA_INLINE void prefetch(Index sub) const {
    constexpr Index line = 64 / static_cast<Index>(sizeof(T));
    const Index last = args_.block.count - 1;
    for (Index i = sub * kQueries; i < (sub + 1) * kQueries; ++i) {
      const T* q = args_.q.data + position(smaller(i + kQueries, last)) * args_.q.row;
      const T* o = args_.out.data + position(smaller(i, last)) * args_.out.row;
      for (Index c = 0; c < args_.width; c += line)
        __builtin_prefetch(q + c * args_.q.column, 0, 2);
      for (Index c = 0; c < args_.value_width; c += line) {
        __builtin_prefetch(o + c * args_.out.column, 1, 2);
      }
    }
  }

  void clear(const RunningSoftmax<T>& state, Index sub) {
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) {
      store(state.max + sub * kQueries + v * kLanes<T>, set1(kMinusInfinity<T>));
      store(state.sum + sub * kQueries + v * kLanes<T>, zero<T>());
    }
    T* o = acc(state, sub);
    for (Index i = 0; i < args_.value_width * kQueries; i += kLanes<T>) store(o + i, zero<T>());
  }

  /// What each sub-block sees of a run; returns the union.
  SeenKeys look(const KeyRun& run, SeenKeys* seen) const {
    const Index count = run_keys(run, args_.key_end);
    SeenKeys all{count, 0, 0, 0};
    for (Index sub = 0; sub < sub_blocks(); ++sub) {
      SeenKeys s{0, 0, count, count};
      if (run.lower != nullptr) {
        s = {count, 0, count, 0};
        for (Index i = sub * kQueries; i < sub * kQueries + sub_rows(sub); ++i) {
          const Index low = run.lower[i];
          const Index high = smaller(run.upper[i], count);
          s.full_begin = larger(s.full_begin, low);
          s.full_end = smaller(s.full_end, high);
          if (low < high) {
            s.begin = smaller(s.begin, low);
            s.end = larger(s.end, high);
          }
        }
      }
      seen[sub] = s;
      all.begin = smaller(all.begin, s.begin);
      all.end = larger(all.end, s.end);
    }
    return all;
  }

  void attend(const KeyRun& run) {
    SeenKeys seen[kMostSubBlocks];
    const SeenKeys all = look(run, seen);
    // Tiles and segments lie at absolute multiples of the keys of this step and phase.
    const Index origin = run.first / run.step;
    for (Index t = all.begin; t < all.end;) {
      const Index end = smaller(all.end, ((origin + t) / kKeyTile + 1) * kKeyTile - origin);
      Tile tile{t, end, matrix(args_.k, run, t, end, args_.width, packed_k_),
                matrix(args_.v, run, t, end, args_.value_width, packed_v_)};
      for (Index sub = 0; sub < sub_blocks(); ++sub) {
        const SeenKeys& s = seen[sub];
        const Index from = larger(t, s.begin);
        const Index to = smaller(end, s.end);
        if (from >= to) continue;
        begin(sub);
        const Index full_begin = clamped(s.full_begin, from, to);
        const Index full_end = clamped(s.full_end, full_begin, to);
        add_tile(sub, run, tile, {from - t, full_begin - t, full_end - t, to - t});
        if (to == s.end && args_.block.run_count == 1) finish(sub);
      }
      if ((origin + end) % kKeySegment == 0 && end < all.end) merge_all();
      t = end;
    }
    if (args_.block.run_count > 1) merge_all();
  }

  /// Keys [begin, end) of a run: at most one tile.
  struct Tile {
    Index begin;
    Index end;
    Matrix<const T> k;  // [end - begin, D]
    Matrix<const T> v;  // [end - begin, Dv]
    bool looked = false;
    bool finite = false;

    /// Whether V holds neither NaN nor infinity; looked at once, if someone asks.
    bool finite_values(Index value_width) {
      if (!looked) finite = all_finite(v.data, v.row, end - begin, value_width);
      looked = true;
      return finite;
    }
  };

  /// Keys [t, end) of the run as a matrix with unit columns; packed if its columns are apart.
  static Matrix<const T> matrix(const Matrix<const T>& m, const KeyRun& run, Index t, Index end,
                                Index width, T* packed) {
    const T* first = m.data + (run.first + run.step * t) * m.row;
    if (m.column == 1) return {first, run.step * m.row, 1};
    for (Index i = 0; i < end - t; ++i) {
      for (Index c = 0; c < width; ++c) {
        packed[i * width + c] = first[i * run.step * m.row + c * m.column];
      }
    }
    return {packed, width, 1};
  }

  /// One tile for one sub-block; `keys` count from the tile's first one.
  void add_tile(Index sub, const KeyRun& run, Tile& tile, const SeenKeys& keys) {
    alignas(kVecBytes) T most[kQueries];
    alignas(kVecBytes) T rescale[kQueries];
    score_tile<V>(tile.k.data + keys.begin * tile.k.row, tile.k.row, keys.end - keys.begin,
                  queries(sub), args_.width, weights_ + keys.begin * kQueries, most);
    LaneBounds<V, T> bounds;
    const bool partial = keys.begin < keys.full_begin || keys.full_end < keys.end;
    if (partial) {
      set(bounds, run, sub, tile.begin, keys.end);
      mask_tile(bounds, keys.begin, keys.full_begin, weights_);
      mask_tile(bounds, keys.full_end, keys.end, weights_);
      maximum_of_tile<V>(weights_, keys.begin, keys.end, most);
    }
    raise_maximum<V>(most, part_.max + sub * kQueries, rescale);

    const bool select = partial && !tile.finite_values(args_.value_width);
    // Chains, too, lie at absolute multiples; the tile begins at one, or at the run's first key.
    const Index origin = run.first / run.step + tile.begin;
    for (Index j = keys.begin; j < keys.end;) {
      const Index end = smaller(keys.end, ((origin + j) / kChain + 1) * kChain - origin);
      add_chain(sub, tile, j, end, select ? &bounds : nullptr, rescale);
      for (T& r : rescale) r = 1;
      j = end;
    }
  }

  /// Keys [begin, end) of a tile, one chain; `bounds` if values must be selected.
  void add_chain(Index sub, const Tile& tile, Index begin, Index end,
                 const LaneBounds<V, T>* bounds, const T* rescale) {
    T* weights = weights_ + begin * kQueries;
    const Index lane = sub * kQueries;
    weight_chain<V>(weights, end - begin, part_.max + lane, rescale, part_.sum + lane);
    const T* values = tile.v.data + begin * tile.v.row;
    if (bounds == nullptr) {
      value_chain<V>(values, tile.v.row, end - begin, args_.value_width, weights, rescale,
                     acc(part_, sub));
    } else {
      value_chain_selected(values, tile.v.row, begin, end - begin, args_.value_width, *bounds,
                           weights, rescale, acc(part_, sub));
    }
  }

  void set(LaneBounds<V, T>& bounds, const KeyRun& run, Index sub, Index t, Index end) const {
    for (Index i = 0; i < kQueries; ++i) {
      const Index r = sub * kQueries + i;
      const bool real = i < sub_rows(sub);
      bounds.lower[i] = static_cast<Int<T>>(real ? clamped(run.lower[r] - t, 0, end) : 0);
      bounds.upper[i] = static_cast<Int<T>>(real ? clamped(run.upper[r] - t, 0, end) : 0);
    }
  }

  /// Ends a segment: its softmax goes into the total, and the next one begins empty.
  void merge_all() {
    for (Index sub = 0; sub < sub_blocks(); ++sub) {
      if (progress_[sub] == Progress::finished) continue;
      begin(sub);
      if (!merged_) clear(total_, sub);
      merge(sub);
      clear(part_, sub);
    }
    merged_ = true;
  }

  void merge(Index sub) {
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) {
      const Index i = sub * kQueries + v * kLanes<T>;
      const Vec<T> now = max(load(total_.max + i), load(part_.max + i));
      const Vec<T> shift = finite_shift(now);
      const Vec<T> from_total = softmax_weight(load(total_.max + i) - shift);
      const Vec<T> from_part = softmax_weight(load(part_.max + i) - shift);
      store(total_.max + i, now);
      store(total_.sum + i, fma(load(total_.sum + i), from_total, load(part_.sum + i) * from_part));
      T* to = acc(total_, sub) + v * kLanes<T>;
      const T* from = acc(part_, sub) + v * kLanes<T>;
      for (Index c = 0; c < args_.value_width * kQueries; c += kQueries) {
        store(to + c, fma(load(to + c), from_total, load(from + c) * from_part));
      }
    }
  }

  /// Divides by the sum and writes the rows out; a row that sees no key becomes +0, lse -inf.
  void finish(Index sub) {
    if (progress_[sub] == Progress::finished) return;
    begin(sub);
    progress_[sub] = Progress::finished;
    if (merged_) merge(sub);
    const RunningSoftmax<T>& state = merged_ ? total_ : part_;
    alignas(kVecBytes) Int<T> seen[kQueries];
    for (Index i = 0; i < kQueries; ++i) seen[i] = i < sub_rows(sub) && sees_any(sub, i) ? -1 : 0;
    alignas(kVecBytes) T lse[kQueries];
    T* o = acc(state, sub);
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) {
      const Index lane = v * kLanes<T>;
      const IntVec<T> visible = load_int<T>(seen + lane);
      const Vec<T> sum = load(state.sum + sub * kQueries + lane);
      const Vec<T> inverse = set1<T>(1) / sum;
      for (Index c = 0; c < args_.value_width; ++c) {
        T* p = o + c * kQueries + lane;
        store(p, select(visible, load(p) * inverse, zero<T>()));
      }
      const Vec<T> total = log_sum_exp(load(state.max + sub * kQueries + lane), sum);
      store(lse + lane, select(visible, total, set1(kMinusInfinity<T>)));
    }
    const Index step = args_.block.step;
    lanes_to_rows(o, kQueries, args_.out.data + row(sub) * args_.out.row, step * args_.out.row,
                  args_.out.column, sub_rows(sub), args_.value_width);
    if (args_.lse.data == nullptr) return;
    for (Index i = 0; i < sub_rows(sub); ++i) {
      args_.lse.data[(row(sub) + step * i) * args_.lse.row] = lse[i];
    }
  }

  /// Whether a row sees a key: from the integers, never from values.
  bool sees_any(Index sub, Index i) const {
    for (Index r = 0; r < args_.block.run_count; ++r) {
      const KeyRun& run = args_.block.runs[r];
      const Index low = run.lower == nullptr ? 0 : run.lower[sub * kQueries + i];
      const Index high = run.upper == nullptr ? run.count : run.upper[sub * kQueries + i];
      if (low < smaller(high, run_keys(run, args_.key_end))) return true;
    }
    return false;
  }

  enum class Progress : unsigned char { none, begun, finished };

  const SoftmaxBlockArgs<T>& args_;
  T* queries_ = nullptr;       // [sub-blocks, D padded, V * lanes], scaled
  RunningSoftmax<T> part_{};   // of the current segment
  RunningSoftmax<T> total_{};  // of the segments before it, if merged_
  T* weights_ = nullptr;       // [kKeyTile, V * lanes]
  T* packed_k_ = nullptr;      // [kKeyTile, D]
  T* packed_v_ = nullptr;      // [kKeyTile, Dv]
  bool merged_ = false;
  Progress progress_[kMostSubBlocks] = {};
};
