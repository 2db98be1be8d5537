// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of softmax attention (Dao et al. 2022, algorithm 4, with queries in the
/// lanes): a block of queries and a block of keys, with weights recomputed from lse. Cost: 2 (3 D +
/// 2 Dv) flops for each computed pair, which are five matrix products.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/grad_rows.inl.hpp"
#include "fovea/kernels/softmax/score_map_tile.inl.hpp"
#include "fovea/simd/lane_sums.inl.hpp"
#endif

/// One call.
template <class T>
class SoftmaxGrad {
 public:
  explicit SoftmaxGrad(const SoftmaxGradArgs<T>& args)
      : args_(args),
        head_(args.head),
        d_(padded_size(head_.width)),
        dv_(padded_size(head_.value_width)),
        // A single sub-block adds to a row only once, unless the row is in several runs.
        sums_apart_(args.add && (args.row_end - args.row_begin > kGradTile || runs_share_keys())),
        sum_k_(sums_apart_ ? args.scratch : args.d_k),
        sum_v_(sums_apart_ ? args.scratch + args.keys.count * d_ : args.d_v),
        d_queries_(args.scratch + args.keys.count * (d_ + dv_)),
        scores_(d_queries_ + kGradTile * d_),
        d_weights_(scores_ + kGradTile * kGradTile),
        slopes_(d_weights_ + kGradTile * kGradTile),
        dropout_(slopes_ + kGradTile * kGradTile),
        seen_(reinterpret_cast<Int<T>*>(dropout_ + kGradTile * kGradTile)),
        rows_(head_, dropout_ + 2 * kGradTile * kGradTile) {}

  void run() {
    const RowRange rows = args_.add ? seen_rows() : RowRange{0, args_.keys.count};
    if (sums_apart_ || !args_.add) clear_sums(rows);
    for (Index row = args_.row_begin; row < args_.row_end; row += kGradTile) {
      const Sub sub{row, smaller(kGradTile, args_.row_end - row)};
      begun_ = false;
      for (Index r = 0; r < args_.block.run_count; ++r) process_run(sub, args_.block.runs[r]);
      if (args_.d_q != nullptr) finish(sub);
    }
    if (sums_apart_) add_sums(rows);
  }

 private:
  static constexpr int V = 4;
  static constexpr Index kGroup = kGradGroup<T>;
  static_assert(kGroup == V * kLanes<T> && kGradTile % kGroup == 0);

  /// The rows [row, row + rows) of the block, which are the queries of one tile.
  struct Sub {
    Index row;
    Index rows;
  };

  /// The keys [begin, end) of a run: at most one tile, cut at multiples of kGradTile.
  struct Tile {
    const KeyRun& run;
    Index begin;
    Index end;
    Index row;          // row of the first key in the block of keys
    Index row_step;     // row stride of keys
    Matrix<const T> k;  // [end - begin, D], unit columns
    Matrix<const T> v;  // [end - begin, Dv], unit columns
    bool partial;       // whether some pairs are hidden
    bool select;        // whether a hidden pair may involve NaN or infinity

    Index keys() const { return end - begin; }
  };

  /// A range of rows of the block of keys.
  struct RowRange {
    Index begin;
    Index end;
  };

  static void clear(T* x, Index n) {
    for (Index i = 0; i < n; i += kLanes<T>) store(x + i, zero<T>());
  }
  static void add(const T* x, T* to, Index n) {
    for (Index i = 0; i < n; i += kLanes<T>) store(to + i, load(to + i) + load(x + i));
  }

  void clear_sums(const RowRange& rows) {
    if (args_.d_k != nullptr) clear(sum_k_ + rows.begin * d_, (rows.end - rows.begin) * d_);
    if (args_.d_v != nullptr) clear(sum_v_ + rows.begin * dv_, (rows.end - rows.begin) * dv_);
  }
  void add_sums(const RowRange& rows) {
    const Index k = rows.begin * d_;
    const Index v = rows.begin * dv_;
    if (args_.d_k != nullptr) add(sum_k_ + k, args_.d_k + k, rows.end * d_ - k);
    if (args_.d_v != nullptr) add(sum_v_ + v, args_.d_v + v, rows.end * dv_ - v);
  }

  /// The position of key t of a run.
  static Index position(const KeyRun& run, Index t) { return run.first + run.step * t; }
  /// The first key of a run at or after a position, within the run.
  static Index first_at(const KeyRun& run, Index position) {
    const Index beyond = position - run.first;
    return beyond <= 0 ? 0 : smaller(run.count, (beyond + run.step - 1) / run.step);
  }

  /// The keys [low, high) of a run that are visible keys of the block.
  struct RunPart {
    Index low;
    Index high;
  };
  RunPart part_of(const KeyRun& run) const {
    const GradKeys& keys = args_.keys;
    if ((run.first - keys.first) % keys.step != 0) return {0, 0};
    const Index end = keys.first + keys.step * keys.count;
    return {first_at(run, keys.first), smaller(first_at(run, end), run_keys(run, head_.key_end))};
  }
  /// The row of key t of a run in the block of keys.
  Index key_row(const KeyRun& run, Index t) const {
    return (position(run, t) - args_.keys.first) / args_.keys.step;
  }

  /// Whether the block's runs of these keys may share a key seen by different rows. It must not
  /// depend on which of the block's rows are computed, as the order of sums must not.
  bool runs_share_keys() const {
    for (Index r = 1; r < args_.block.run_count; ++r) {
      const KeyRun& run = args_.block.runs[r];
      const RunPart part = part_of(run);
      if (part.low >= part.high) continue;
      for (Index before = 0; before < r; ++before) {
        const KeyRun& other = args_.block.runs[before];
        const RunPart of_other = part_of(other);
        if (of_other.low < of_other.high &&
            position(run, part.low) <= position(other, of_other.high - 1) &&
            position(other, of_other.low) <= position(run, part.high - 1)) {
          return true;
        }
      }
    }
    return false;
  }

  /// The rows from the first to the last one that a run reaches.
  RowRange seen_rows() const {
    RowRange rows{args_.keys.count, 0};
    for (Index r = 0; r < args_.block.run_count; ++r) {
      const KeyRun& run = args_.block.runs[r];
      const RunPart part = part_of(run);
      if (part.low >= part.high) continue;
      rows.begin = smaller(rows.begin, key_row(run, part.low));
      rows.end = larger(rows.end, key_row(run, part.high - 1) + 1);
    }
    return rows.begin < rows.end ? rows : RowRange{0, 0};
  }

  void process_run(const Sub& sub, const KeyRun& run) {
    const RunPart part = part_of(run);
    if (part.low >= part.high) return;
    const VisibleKeys seen = seen_keys(run, sub.row, sub.rows, part.low, part.high);
    const Index origin = run.first / run.step;
    const Index step = run.step / args_.keys.step;
    for (Index t = seen.begin; t < seen.end;) {
      const Index end = smaller(seen.end, ((origin + t) / kGradTile + 1) * kGradTile - origin);
      if (!begun_) begin(sub);
      const Index row = key_row(run, t);
      Tile tile{run,
                t,
                end,
                row,
                step,
                {args_.k.data + row * args_.k.row, step * args_.k.row, 1},
                {args_.v.data + row * args_.v.row, step * args_.v.row, 1},
                t < seen.full_begin || end > seen.full_end,
                false};
      tile.select = (tile.partial || head_.map.hides()) && !finite(tile);
      if (tile.partial && !tile.select) {
        pairs_.set_bounds(run, sub.row, sub.rows, t, end);
      } else {
        pairs_.set_all(sub.rows, end - t);
      }
      add_tile(sub, tile);
      t = end;
    }
  }

  bool finite(const Tile& tile) {
    return rows_.finite() && rows_finite(tile.k, tile.keys(), head_.width) &&
           rows_finite(tile.v, tile.keys(), head_.value_width);
  }

  void begin(const Sub& sub) {
    begun_ = true;
    const Index step = args_.block.step;
    rows_.load_all(args_.block.first + step * sub.row, step, sub.rows);
    clear(d_queries_, kGradTile * d_);
  }

  /// Writes the rows of d_q. A sub-block without visible keys gets zeros.
  void finish(const Sub& sub) {
    T* to = args_.d_q + (sub.row - args_.row_begin) * d_;
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
    if (args_.d_bias.data != nullptr) add_bias(sub, tile);
    if (args_.d_v != nullptr) add_keys(sub, tile, scores_, rows_.d_out_rows(), dv_, sum_v_);
    if (args_.d_k != nullptr) add_keys(sub, tile, d_weights_, rows_.query_rows(), d_, sum_k_);
  }

  /// Adds a tile's contribution to the gradients of its keys or values.
  void add_keys(const Sub& sub, const Tile& tile, const T* weights, const Matrix<const T>& rows,
                Index width, T* sums) {
    sums += tile.row * width;
    const Index step = tile.row_step * width;
    if (tile.select) {
      key_sums_selected(weights, seen_, tile.keys(), rows.data, rows.row, width, sub.rows, sums,
                        step);
    } else {
      key_sums(pairs_, weights, tile.keys(), rows.data, rows.row, width, sums, step);
    }
  }

  /// Computes the weights and the gradients of the logits of group g, and their contributions to
  /// the gradients of the queries.
  void add_group(const Sub& sub, const Tile& tile, Index g) {
    const Index keys = tile.keys();
    T* scores = scores_ + g * kGroup * kGradTile;
    T* d_weights = d_weights_ + g * kGroup * kGradTile;
    const VisibleKeys* const lanes = pairs_.lanes + g * V;
    if (head_.map.modifier.is_used()) {
      // Computed for all pairs of the tile.
      all_lane_scores(tile.k.data, tile.k.row, keys, rows_.queries(g), head_.width, scores);
    } else {
      lane_scores(lanes, tile.k.data, tile.k.row, keys, rows_.queries(g), head_.width, scores);
    }
    lane_scores(lanes, tile.v.data, tile.v.row, keys, rows_.d_out(g), head_.value_width, d_weights);
    if (tile.select || !head_.map.is_identity() || rows_.lse_low(g) != nullptr) {
      weigh_with_options(sub, tile, g, scores, d_weights);
    } else if (tile.partial) {
      LaneBounds<V, T> bounds;
      set_bounds(bounds, tile.run, sub.row + g * kGroup, sub.rows - g * kGroup, tile.begin, keys);
      grad_tile_in_bounds(lanes, bounds, rows_.lse(g), rows_.delta(g), keys, scores, d_weights);
    } else {
      grad_tile<V>(rows_.lse(g), rows_.delta(g), keys, scores, d_weights);
    }
    if (args_.d_q == nullptr) return;
    T* acc = d_queries_ + g * kGroup * d_;
    if (tile.select) {
      query_sums_selected<V>(tile.k.data, tile.k.row, keys, head_.width, d_weights,
                             seen_ + g * kGroup * kGradTile, acc);
    } else {
      lane_sums(lanes, tile.k.data, tile.k.row, head_.width, d_weights, acc);
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
    options.lift = map.exponent_bias;
    options.lse_low = rows_.lse_low(g);
    if (map.soft_cap != 0 || map.modifier.is_used()) {
      bend_logits(place, keys, scores, slopes_ + at);
      // The bias gets the gradients of the sums that it was added to.
      if (args_.d_bias.data == nullptr) options.slopes = slopes_ + at;
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

  /// Applies soft cap and modifier, and writes their derivatives.
  void bend_logits(const TilePlace& place, Index keys, T* scores, T* slopes) const {
    const ScoreMap<T>& map = head_.map;
    if (map.soft_cap != 0) cap_tile<V>(map, 0, keys, scores);
    const T inverse_cap = map.soft_cap != 0 ? 1 / logit_factor(map.soft_cap) : T{0};
    for (Index i = 0; i < keys * kGroup; i += kLanes<T>) {
      const Vec<T> ratio = load(scores + i) * set1(inverse_cap);
      store(slopes + i, fma(zero<T>() - ratio, ratio, set1<T>(1)));
    }
    if (map.modifier.is_used()) modify_tile<V>(map, place, 0, keys, scores, slopes);
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

  /// Adds the tile's gradients of logits to those of the bias, summed over the tile along broadcast
  /// dimensions.
  void add_bias(const Sub& sub, const Tile& tile) {
    const Matrix<T>& bias = args_.d_bias;
    const TilePlace place = tile_place(sub, tile, 0);
    const T unlift = power_of_two<T>(-head_.map.exponent_bias);
    if (bias.column == 1 && bias.row != 0 && place.key_step == 1) {
      return add_bias_rows(sub, tile, place, unlift);
    }
    T of_query[kGradTile] = {};
    for (Index j = 0; j < tile.keys(); ++j) {
      T* const to = bias.data + (place.key + place.key_step * j) * bias.column;
      T of_key = 0;
      for (Index i = 0; i < sub.rows; ++i) {
        const T x =
            rounded(unlift * d_weights_[(i / kGroup * kGradTile + j) * kGroup + i % kGroup]);
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

  /// The same for a bias whose rows match the tile's keys in memory.
  void add_bias_rows(const Sub& sub, const Tile& tile, const TilePlace& place, T unlift) {
    const Matrix<T>& bias = args_.d_bias;
    const Index keys = tile.keys();
    T* const rows = slopes_;  // [kGroup, kGradTile]: slopes are no longer read
    for (Index first = 0; first < sub.rows; first += kGroup) {
      const Index count = smaller(kGroup, sub.rows - first);
      lanes_to_rows(d_weights_ + first * kGradTile, kGroup, rows, kGradTile, 1, count, keys);
      for (Index i = 0; i < count; ++i) {
        T* const to = bias.data + (place.row + place.row_step * (first + i)) * bias.row + place.key;
        Index j = 0;
        for (; j + kLanes<T> <= keys; j += kLanes<T>) {
          store(to + j, load(to + j) + load(rows + i * kGradTile + j) * set1(unlift));
        }
        for (; j < keys; ++j) to[j] += rounded(unlift * rows[i * kGradTile + j]);
      }
    }
  }

  const SoftmaxGradArgs<T>& args_;
  const SoftmaxGradHead<T>& head_;
  const Index d_;  // D and Dv, padded
  const Index dv_;
  const bool sums_apart_;  // whether this block's sums are computed before they are added
  T* const sum_k_;         // [keys, D padded]
  T* const sum_v_;         // [keys, Dv padded]
  T* const d_queries_;     // [groups, D padded, kGroup]
  T* const scores_;        // [groups, kGradTile, kGroup], later weights
  T* const d_weights_;     // the same shape; later gradients of logits
  T* const slopes_;        // the same shape: derivatives of soft cap and modifier
  T* const dropout_;       // the same shape: factors
  Int<T>* const seen_;     // the same shape: lane masks
  GradRows<T> rows_;
  GradPairs<T> pairs_;  // of the current tile
  bool begun_ = false;  // whether rows_ holds the current sub-block's rows
};

/// The backward pass of one block of queries and one block of keys. It writes d_q, writes or adds
/// to d_k and d_v, and adds to d_bias.
template <class T>
void softmax_grad(const SoftmaxGradArgs<T>& args) noexcept {
  SoftmaxGrad<T>(args).run();
}
