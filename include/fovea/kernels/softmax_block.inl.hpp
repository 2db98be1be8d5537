// SPDX-License-Identifier: MIT
/// \file
/// Softmax attention of a block of queries over a list of key runs, forward: the running softmax
/// of Milakov and Gimelshein 2018 with queries in the lanes. Cost 2 (D + Dv) flops per computed
/// pair; scratch O(rows (D + Dv)). Oracle tests/support/oracle/softmax.hpp, test
/// tests/attention/conformance_test.cpp.

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
    visible_ = reinterpret_cast<Int<T>*>(packed_v_ + kKeyTile * padded(args.value_width));
    seen_ = visible_ + kChain * kQueries;
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
    rows_to_lanes(every_row<T>(args_.q, row(sub), args_.block.step), sub_rows(sub), args_.width,
                  factor, queries(sub), kQueries);
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) {
      store_int<T>(seen_ + sub * kQueries + v * kLanes<T>, set1_int<T>(0));
    }
    clear(part_, sub);
  }

  /// Asks for the queries of the next sub-block and the output rows of this one.
  FOVEA_INLINE void prefetch(Index sub) const {
    const Index last = args_.block.count - 1;
    for (Index i = sub * kQueries; i < (sub + 1) * kQueries; ++i) {
      prefetch_row<T, 0>(args_.q, position(smaller(i + kQueries, last)), args_.width);
      prefetch_row<T, 1>(args_.out, position(smaller(i, last)), args_.value_width);
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
      const SeenKeys s = seen_keys(run, sub * kQueries, sub_rows(sub), 0, count);
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

  /// Keys [t, end) of the run as a matrix of T with unit columns; packed if it is not one.
  Matrix<const T> matrix(const StoredMatrix<const void>& m, const KeyRun& run, Index t, Index end,
                         Index width, T* packed) const {
    const auto keys = every_row<T>(m, run.first - args_.key_base + run.step * t, run.step);
    if (m.storage == Storage::native && m.column == 1) return native<const T>(keys);
    pack_rows(keys, end - t, width, packed, padded(width));
    return {packed, padded(width), 1};
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
      set_bounds(bounds, run, sub * kQueries, sub_rows(sub), tile.begin, keys.end);
    }
    const ScoreMap<T>& map = args_.map;
    TilePairs pairs{tile_place(sub, run, tile), partial ? &bounds : nullptr};
    if (map.changes_logits()) {
      map_tile(sub, pairs, keys.begin, keys.end, most);
    } else if (partial) {
      mask_tile(bounds, keys.begin, keys.full_begin, weights_);
      mask_tile(bounds, keys.full_end, keys.end, weights_);
      maximum_of_tile<V>(weights_, keys.begin, keys.end, most);
    }
    raise_maximum<V>(most, part_.max + sub * kQueries, rescale);

    pairs.select = (partial || map.hides()) && !tile.finite_values(args_.value_width);
    // Chains, too, lie at absolute multiples; the tile begins at one, or at the run's first key.
    const Index origin = run.first / run.step + tile.begin;
    for (Index j = keys.begin; j < keys.end;) {
      const Index end = smaller(keys.end, ((origin + j) / kChain + 1) * kChain - origin);
      add_chain(sub, tile, j, end, pairs, rescale);
      for (T& r : rescale) r = 1;
      j = end;
    }
  }

  /// What is known of the pairs of a tile and a sub-block.
  struct TilePairs {
    TilePlace place;
    const LaneBounds<V, T>* bounds;  // null: the pattern shows all of them
    bool select = false;             // whether hidden values must be left out, not weighted by 0
  };

  TilePlace tile_place(Index sub, const KeyRun& run, const Tile& tile) const {
    const Index rows = args_.block.count - sub * kQueries;
    return {row(sub), args_.block.step,    rows, run.first + run.step * tile.begin,
            run.step, args_.first_position};
  }

  /// The score map for the logits of keys [begin, end); most = the largest of them, per query.
  void map_tile(Index sub, const TilePairs& pairs, Index begin, Index end, T* most) {
    const ScoreMap<T>& map = args_.map;
    if (map.soft_cap != 0) cap_tile<V>(map, begin, end, weights_, most);
    if (map.alibi_slope == 0 && !map.hides() && pairs.bounds == nullptr) return;
    shift_tile<V>(map, pairs.place, pairs.bounds, begin, end, weights_, seen_ + sub * kQueries,
                  most);
  }

  /// Keys [begin, end) of a tile, one chain.
  void add_chain(Index sub, const Tile& tile, Index begin, Index end, const TilePairs& pairs,
                 const T* rescale) {
    const ScoreMap<T>& map = args_.map;
    T* weights = weights_ + begin * kQueries;
    const Index lane = sub * kQueries;
    weight_chain<V>(weights, end - begin, part_.max + lane, rescale, map.weight_lift,
                    part_.sum + lane);
    if (map.drops()) dropout_tile<V>(map.dropout, pairs.place, begin, end, weights_);
    const T* values = tile.v.data + begin * tile.v.row;
    if (!pairs.select) {
      value_chain<V>(values, tile.v.row, end - begin, args_.value_width, weights, rescale,
                     acc(part_, sub));
      return;
    }
    for (Index j = begin; j < end; ++j) {
      for (int v = 0; v < V; ++v) {
        store_int<T>(visible_ + ((j - begin) * V + v) * kLanes<T>,
                     visible_lanes<V>(map, pairs.place, pairs.bounds, j, v));
      }
    }
    value_chain_selected<V>(values, tile.v.row, end - begin, args_.value_width, visible_, weights,
                            rescale, acc(part_, sub));
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
    alignas(kVecBytes) Int<T> seen[kQueries] = {};
    for (Index i = 0; i < sub_rows(sub); ++i) seen[i] = sees_any(sub, i) ? -1 : 0;
    alignas(kVecBytes) T lse[kQueries];
    const int lift = args_.map.weight_lift;
    T* o = acc(state, sub);
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) {
      const Index lane = v * kLanes<T>;
      const IntVec<T> visible = load_int<T>(seen + lane);
      Vec<T> most = load(state.max + sub * kQueries + lane);
      Vec<T> sum = load(state.sum + sub * kQueries + lane);
      Vec<T> rescale = set1<T>(1);
      if (args_.sink != nullptr) rescale = add_sink(*args_.sink, lift, most, sum);
      const Vec<T> inverse = rescale / sum;
      for (Index c = 0; c < args_.value_width; ++c) {
        T* p = o + c * kQueries + lane;
        store(p, select(visible, load(p) * inverse, zero<T>()));
      }
      const Vec<T> total = log_sum_exp(most, sum, lift);
      store(lse + lane, select(visible, total, set1(kMinusInfinity<T>)));
    }
    const Index step = args_.block.step;
    lanes_to_rows(o, kQueries, every_row<T>(args_.out, row(sub), step), sub_rows(sub),
                  args_.value_width);
    if (args_.lse.data == nullptr) return;
    for (Index i = 0; i < sub_rows(sub); ++i) {
      args_.lse.data[(row(sub) + step * i) * args_.lse.row] = lse[i];
    }
  }

  /// Whether a row sees a key: from pattern, mask and bias, never from logits.
  bool sees_any(Index sub, Index i) const {
    if (args_.map.hides()) return seen_[sub * kQueries + i] != 0;
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
  T* packed_k_ = nullptr;      // [kKeyTile, D padded]
  T* packed_v_ = nullptr;      // [kKeyTile, Dv padded]
  Int<T>* visible_ = nullptr;  // [kChain, V * lanes] lane masks of the pairs of a chain
  Int<T>* seen_ = nullptr;     // [queries] -1: has seen a key, if the map hides some
  bool merged_ = false;
  Progress progress_[kMostSubBlocks] = {};
};
