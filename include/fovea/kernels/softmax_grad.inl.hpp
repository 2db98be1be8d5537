// SPDX-License-Identifier: MIT
/// \file
/// Softmax attention backward (Dao et al. 2022, algorithm 4, with queries in the lanes): a block of
/// queries against a block of keys, weights recomputed from lse. Cost 2 (3 D + 2 Dv) flops per
/// computed pair: five matrix products. Oracle tests/support/oracle/softmax_grad.hpp, test
/// tests/attention/gradient_test.cpp.

/// One call.
template <class T>
class SoftmaxGrad {
 public:
  explicit SoftmaxGrad(const SoftmaxGradArgs<T>& args)
      : args_(args),
        head_(args.head),
        d_(grad_padded(head_.width)),
        dv_(grad_padded(head_.value_width)),
        keys_(args.key_last - args.key_first),
        sum_k_(args.scratch),
        sum_v_(sum_k_ + keys_ * d_),
        d_queries_(sum_v_ + keys_ * dv_),
        packed_k_(d_queries_ + kGradTile * d_),
        packed_v_(packed_k_ + kGradTile * d_),
        scores_(packed_v_ + kGradTile * dv_),
        d_weights_(scores_ + kGradTile * kGradTile),
        capped_(d_weights_ + kGradTile * kGradTile),
        dropout_(capped_ + kGradTile * kGradTile),
        seen_(reinterpret_cast<Int<T>*>(dropout_ + kGradTile * kGradTile)),
        rows_(head_, dropout_ + 2 * kGradTile * kGradTile) {}

  void run() {
    if (args_.d_k != nullptr) clear(sum_k_, keys_ * d_);
    if (args_.d_v != nullptr) clear(sum_v_, keys_ * dv_);
    for (Index row = 0; row < args_.block.count; row += kGradTile) {
      const Sub sub{row, smaller(kGradTile, args_.block.count - row)};
      begun_ = false;
      for (Index r = 0; r < args_.block.run_count; ++r) attend(sub, args_.block.runs[r]);
      if (args_.d_q != nullptr) finish(sub);
    }
    if (args_.d_k != nullptr) add(sum_k_, args_.d_k, keys_ * d_);
    if (args_.d_v != nullptr) add(sum_v_, args_.d_v, keys_ * dv_);
  }

 private:
  static constexpr int V = 4;
  static constexpr Index kGroup = kGradGroup<T>;
  static_assert(kGroup == V * kLanes<T> && kGradTile % kGroup == 0);

  /// Rows [row, row + rows) of the block: the queries of one tile.
  struct Sub {
    Index row;
    Index rows;
  };

  /// Keys [begin, end) of a run: at most one tile, at an absolute multiple of kGradTile.
  struct Tile {
    const KeyRun& run;
    Index begin;
    Index end;
    Matrix<const T> k;  // [end - begin, D], unit columns
    Matrix<const T> v;  // [end - begin, Dv], unit columns
    bool partial;       // some of the queries do not see some of the keys
    bool select;        // a hidden pair may meet a NaN or an infinity

    Index keys() const { return end - begin; }
  };

  static void clear(T* x, Index n) {
    for (Index i = 0; i < n; i += kLanes<T>) store(x + i, zero<T>());
  }
  static void add(const T* x, T* to, Index n) {
    for (Index i = 0; i < n; i += kLanes<T>) store(to + i, load(to + i) + load(x + i));
  }

  /// The position of key t of a run.
  static Index position(const KeyRun& run, Index t) { return run.first + run.step * t; }
  /// The first key of a run at or after a position, within the run.
  static Index first_at(const KeyRun& run, Index position) {
    const Index beyond = position - run.first;
    return beyond <= 0 ? 0 : smaller(run.count, (beyond + run.step - 1) / run.step);
  }

  void attend(const Sub& sub, const KeyRun& run) {
    const Index low = first_at(run, args_.key_first);
    const Index high = smaller(first_at(run, args_.key_last), run_keys(run, head_.key_end));
    if (low >= high) return;
    const SeenKeys seen = seen_keys(run, sub.row, sub.rows, low, high);
    const Index origin = run.first / run.step;
    for (Index t = seen.begin; t < seen.end;) {
      const Index end = smaller(seen.end, ((origin + t) / kGradTile + 1) * kGradTile - origin);
      if (!begun_) begin(sub);
      Tile tile{run,
                t,
                end,
                matrix(head_.k, run, t, end, head_.width, packed_k_),
                matrix(head_.v, run, t, end, head_.value_width, packed_v_),
                t < seen.full_begin || end > seen.full_end,
                false};
      tile.select = (tile.partial || head_.map.hides()) && !finite(tile);
      add_tile(sub, tile);
      t = end;
    }
  }

  bool finite(const Tile& tile) {
    return rows_.finite() && all_finite(tile.k.data, tile.k.row, tile.keys(), head_.width) &&
           all_finite(tile.v.data, tile.v.row, tile.keys(), head_.value_width);
  }

  void begin(const Sub& sub) {
    begun_ = true;
    const Index step = args_.block.step;
    rows_.load_all(args_.block.first + step * sub.row, step, sub.rows);
    clear(d_queries_, kGradTile * d_);
  }

  /// The rows of d_q: of a sub-block that saw nothing, zeros.
  void finish(const Sub& sub) {
    T* to = args_.d_q + sub.row * d_;
    if (!begun_) {
      clear(to, sub.rows * d_);
      return;
    }
    for (Index i = 0; i < sub.rows; i += kGroup) {
      lanes_to_rows(d_queries_ + i * d_, kGroup, to + i * d_, d_, 1, smaller(kGroup, sub.rows - i),
                    d_);
    }
  }

  void add_tile(const Sub& sub, const Tile& tile) {
    for (Index i = 0; i < sub.rows; i += kGroup) add_group(sub, tile, i / kGroup);
    if (args_.d_bias.data != nullptr) {
      add_bias(sub, tile);
      return;
    }
    const Index at = position(tile.run, tile.begin) - args_.key_first;
    add_keys(sub, tile, scores_, rows_.d_out_rows(), dv_, args_.d_v != nullptr, sum_v_ + at * dv_);
    add_keys(sub, tile, d_weights_, rows_.query_rows(), d_, args_.d_k != nullptr, sum_k_ + at * d_);
  }

  /// What a tile adds to the gradients of its keys or values.
  void add_keys(const Sub& sub, const Tile& tile, const T* weights, const T* rows, Index row,
                bool wanted, T* sums) {
    if (!wanted) return;
    const Index step = tile.run.step * row;
    if (tile.select) {
      key_sums_selected(weights, seen_, kGroup, tile.keys(), rows, row, sub.rows, sums, step);
    } else {
      key_sums(weights, kGroup, tile.keys(), rows, row, sub.rows, sums, step);
    }
  }

  /// Weights and gradients of logits of group g, and what they add to the queries' gradients.
  void add_group(const Sub& sub, const Tile& tile, Index g) {
    const Index keys = tile.keys();
    T* scores = scores_ + g * kGroup * kGradTile;
    T* d_weights = d_weights_ + g * kGroup * kGradTile;
    alignas(kVecBytes) T most[kGroup];
    score_tile<V>(tile.k.data, tile.k.row, keys, rows_.queries(g), head_.width, scores, most);
    score_tile<V>(tile.v.data, tile.v.row, keys, rows_.d_out(g), head_.value_width, d_weights,
                  most);
    if (tile.partial || !head_.map.is_identity()) {
      weigh_with_options(sub, tile, g, scores, d_weights);
    } else {
      grad_tile<V>(rows_.lse(g), rows_.delta(g), keys, scores, d_weights);
    }
    if (args_.d_q != nullptr) {
      T* acc = d_queries_ + g * kGroup * d_;
      if (tile.select) {
        query_sums_selected<V>(tile.k.data, tile.k.row, keys, head_.width, d_weights,
                               seen_ + g * kGroup * kGradTile, acc);
      } else {
        alignas(kVecBytes) T one[kGroup];
        for (T& x : one) x = 1;
        value_chain<V>(tile.k.data, tile.k.row, keys, head_.width, d_weights, one, acc);
      }
    }
  }

  void weigh_with_options(const Sub& sub, const Tile& tile, Index g, T* scores, T* d_weights) {
    const ScoreMap<T>& map = head_.map;
    const Index keys = tile.keys();
    const Index at = g * kGroup * kGradTile;
    const TilePlace place = tile_place(sub, tile, g);
    LaneBounds<V, T> bounds;
    if (tile.partial) {
      set_bounds(bounds, tile.run, sub.row + g * kGroup, sub.rows - g * kGroup, tile.begin, keys);
    }
    const LaneBounds<V, T>* bound = tile.partial ? &bounds : nullptr;
    GradTileOptions<T> options;
    options.hides = tile.partial || map.hides();
    options.lift = map.weight_lift;
    options.before_cap = args_.d_bias.data != nullptr;
    if (map.soft_cap != 0) {
      cap_tile<V>(map, 0, keys, scores);
      for (Index i = 0; i < keys * kGroup; i += kLanes<T>) {
        store(capped_ + at + i, load(scores + i));
      }
      options.capped = capped_ + at;
      options.inverse_cap = 1 / logit_factor(map.soft_cap);
    }
    if (options.hides || map.changes_logits()) {
      shift_tile<V>(map, place, bound, 0, keys, scores, static_cast<Int<T>*>(nullptr));
    }
    if (map.drops()) {
      dropout_factors<V>(map.dropout, place, 0, keys, dropout_ + at);
      options.dropout = dropout_ + at;
    }
    if (tile.select) {
      for (Index j = 0; j < keys; ++j) {
        for (int v = 0; v < V; ++v) {
          store_int<T>(seen_ + at + (j * V + v) * kLanes<T>,
                       visible_lanes<V>(map, place, bound, j, v));
        }
      }
      options.seen = seen_ + at;
    }
    grad_tile<V>(rows_.lse(g), rows_.delta(g), keys, options, scores, d_weights);
  }

  TilePlace tile_place(const Sub& sub, const Tile& tile, Index g) const {
    const Index row = sub.row + g * kGroup;
    return {args_.block.first + args_.block.step * row,
            args_.block.step,
            smaller(kGroup, sub.rows - g * kGroup),
            position(tile.run, tile.begin),
            tile.run.step,
            head_.first_position};
  }

  /// Adds the tile's gradients of logits to those of the bias: along a dimension that it was
  /// broadcast to, their sum over the tile.
  void add_bias(const Sub& sub, const Tile& tile) {
    const Matrix<T>& bias = args_.d_bias;
    const TilePlace place = tile_place(sub, tile, 0);
    const T unlift = power_of_two<T>(-head_.map.weight_lift);
    T of_query[kGradTile] = {};
    for (Index j = 0; j < tile.keys(); ++j) {
      T* const to = bias.data + (place.key + place.key_step * j) * bias.column;
      T of_key = 0;
      for (Index i = 0; i < sub.rows; ++i) {
        const T x = unlift * d_weights_[(i / kGroup * kGradTile + j) * kGroup + i % kGroup];
        if (bias.column == 0) {
          of_query[i] += x;
        } else if (bias.row == 0) {
          of_key += x;
        } else {
          to[(place.row + place.row_step * i) * bias.row] += x;
        }
      }
      if (bias.column != 0 && bias.row == 0) *to += of_key;
    }
    if (bias.column != 0) return;
    T total = 0;
    for (Index i = 0; i < sub.rows; ++i) {
      total += of_query[i];
      if (bias.row != 0) bias.data[(place.row + place.row_step * i) * bias.row] += of_query[i];
    }
    if (bias.row == 0) *bias.data += total;
  }

  /// Keys [t, end) of the run as a matrix with unit columns; packed if its columns are apart.
  static Matrix<const T> matrix(const Matrix<const T>& m, const KeyRun& run, Index t, Index end,
                                Index width, T* packed) {
    const T* first = m.data + position(run, t) * m.row;
    if (m.column == 1) return {first, run.step * m.row, 1};
    for (Index i = 0; i < end - t; ++i) {
      for (Index c = 0; c < width; ++c) {
        packed[i * width + c] = first[i * run.step * m.row + c * m.column];
      }
    }
    return {packed, width, 1};
  }

  const SoftmaxGradArgs<T>& args_;
  const SoftmaxGradHead<T>& head_;
  const Index d_;  // D and Dv, padded
  const Index dv_;
  const Index keys_;    // of the block
  T* const sum_k_;      // [keys, D padded]: what this block of queries adds
  T* const sum_v_;      // [keys, Dv padded]
  T* const d_queries_;  // [groups, D padded, kGroup]
  T* const packed_k_;   // [kGradTile, D]
  T* const packed_v_;   // [kGradTile, Dv]
  T* const scores_;     // [groups, kGradTile, kGroup], then weights
  T* const d_weights_;  // the same, then gradients of logits
  T* const capped_;     // the same: logits after the soft cap
  T* const dropout_;    // the same: factors
  Int<T>* const seen_;  // the same: lane masks
  GradRows<T> rows_;
  bool begun_ = false;  // whether rows_ holds the rows of the sub-block at work
};

/// Backward of one block of queries against a block of keys. Writes d_q, adds to d_k and d_v; or
/// adds to d_bias.
template <class T>
void softmax_grad(const SoftmaxGradArgs<T>& args) noexcept {
  SoftmaxGrad<T>(args).run();
}

/// to = scale rows (+ to).
template <class T>
void scaled_rows(const ScaledRowsArgs<T>& args) noexcept {
  const Index padded = grad_padded(args.width);
  for (Index i = 0; i < args.count; ++i) {
    const T* from = args.rows + i * padded;
    T* to = args.to.data + (args.first + args.step * i) * args.to.row;
    for (Index c = 0; c < args.width; c += kLanes<T>) {
      Vec<T> before = zero<T>();
      if (args.add) before = load_columns<T>(to, args.to.column, c, args.width);
      store_columns(to, args.to.column, c, args.width,
                    fma(load(from + c), set1(args.scale), before));
    }
  }
}

/// The gradient of the sink of one head. Rows that see no key have no part in it.
template <class T>
void sink_grad(const SinkGradArgs<T>& args) noexcept {
  GradRows<T> rows(args.head, args.scratch);
  const T sink = *args.head.sink * logit_factor(T{1});
  T total[kGradTile] = {};
  for (Index first = 0; first < args.queries; first += kGradTile) {
    rows.load_sums(first, 1, smaller(kGradTile, args.queries - first));
    for (Index g = 0; g < kGradTile / kGradGroup<T>; ++g) {
      for (Index i = 0; i < kGradGroup<T>; i += kLanes<T>) {
        T* sum = total + g * kGradGroup<T> + i;
        const Vec<T> lse = load(rows.lse(g) + i);
        const Vec<T> term = softmax_weight(set1(sink) - lse) * load(rows.delta(g) + i);
        const IntVec<T> sees_none = lse == set1(std::numeric_limits<T>::infinity());
        store(sum, select(sees_none, load(sum), load(sum) - term));
      }
    }
  }
  T sum = 0;
  for (const T x : total) sum += x;
  *args.sum = sum;
}
