// SPDX-License-Identifier: MIT
/// \file
/// Softmax attention of a few query rows over segments of keys. Each logit, sum and weighted sum is
/// the same chain of operations as in block.inl.hpp: tiles and chains of keys lie at the same
/// points of a run, and keys that a row does not see add nothing. So the bits are the same.

#if !defined(FOVEA_LEVEL)  // Read alone: what it stands on.
#pragma once
#include "fovea/kernels/softmax/block.hpp"
#include "fovea/kernels/softmax/row.hpp"
#include "fovea/kernels/softmax/row_products.inl.hpp"
#include "fovea/kernels/softmax/score_map.inl.hpp"
#include "fovea/simd/lane_sums.inl.hpp"
#include "fovea/simd/register_block.inl.hpp"
#endif

/// The running softmax of some rows, as it lies in memory (softmax_row_part).
template <class T>
struct RowSoftmax {
  T* max_logit;  // [rows]
  T* sum;        // [rows]
  T* saw;        // [rows] 1 if the row saw a key, else 0: by pattern, mask and bias, not by logits
  T* acc;        // [rows, acc_row]
  Index acc_row;

  RowSoftmax(T* part, Index rows, Index value_width)
      : max_logit(part),
        sum(max_logit + padded_size(rows)),
        saw(sum + padded_size(rows)),
        acc(saw + padded_size(rows)),
        acc_row(padded_size(value_width)) {}
};

/// The points [begin, end) of a run.
struct KeyRange {
  Index begin;
  Index end;

  FOVEA_INLINE KeyRange within(Index low, Index high) const {
    return {larger(begin, low), smaller(end, high)};
  }
  FOVEA_INLINE bool empty() const { return begin >= end; }
};

/// A run of keys by its points: where these are in the sequence, and in k and v.
struct RunPoints {
  KeyRun run{};
  Index first = 0;     // the run's first point
  Index end = 0;       // one past the last point that lies before key_end
  Index phase = 0;     // position of point 0
  Index row = 0;       // row of point 0
  Index row_step = 1;  // rows from one point to the next

  RunPoints() = default;
  RunPoints(const KeyRun& keys, const KeyRows& rows, Index key_end)
      : run(keys),
        first(run.first / run.step),
        end(first + run_keys(run, key_end)),
        phase(run.first - run.step * first),
        row(rows.row(run.first) - rows.step(run.step) * first),
        row_step(rows.step(run.step)) {}

  FOVEA_INLINE Index position(Index n) const { return phase + run.step * n; }

  /// The points that row i of the block sees.
  FOVEA_INLINE KeyRange seen_by(Index i) const {
    if (run.lower == nullptr) return {first, end};
    return {first + run.lower[i], smaller(first + run.upper[i], end)};
  }
};

/// One call: the rows of some heads over one segment after the other.
template <Storage S, class T>
class SoftmaxRow {
 public:
  explicit SoftmaxRow(const SoftmaxRowArgs<T, S>& args)
      : args_(args),
        head_(args.heads[0]),
        rows_(args.head_count * args.block.count),
        q_row_(padded_size(head_.width)),
        state_(args.parts, rows_, head_.value_width),
        queries_(args.scratch),
        weights_(queries_ + rows_ * q_row_),
        visible_(reinterpret_cast<Int<T>*>(weights_ + kRowsAtOnce * kKeyTile)) {}

  void run() {
    load_queries();
    const Index part = softmax_row_part(rows_, head_.value_width);
    for (Index n = 0; n < args_.segment_count; ++n) {
      const RunSegment& at = args_.segments[n];
      state_ = {args_.parts + n * part, rows_, head_.value_width};
      points_ = {args_.block.runs[at.run], head_.key_rows, head_.key_end};
      clear();
      add_segment(KeyRange{points_.first, points_.end}.within(at.segment * kKeySegment,
                                                              (at.segment + 1) * kKeySegment));
    }
  }

 private:
  void add_segment(const KeyRange& all) const {
    for (Index begin = all.begin; begin < all.end;) {
      const Index end = smaller(all.end, (begin / kKeyTile + 1) * kKeyTile);
      for_row_blocks<kRowsAtOnce>(0, rows_, Tile{*this, {begin, end}});
      begin = end;
    }
  }

  void load_queries() const {
    for (Index r = 0; r < rows_; ++r) {
      const SoftmaxBlockArgs<T, S>& head = head_of(r);
      const Index from = query(r) * head.q.row;
      const Vec<T> factor = set1(logit_factor(head.scale));
      for (Index c = 0; c < head.width; c += kLanes<T>) {
        const Vec<T> x = load_columns<S, T>(head.q.data, from, head.q.column, c, head.width);
        store(queries_ + r * q_row_ + c, x * factor);
      }
    }
  }

  void clear() const {
    for (Index r = 0; r < rows_; ++r) {
      state_.max_logit[r] = kMinusInfinity<T>;
      state_.sum[r] = 0;
      state_.saw[r] = 0;
    }
    for (Index i = 0; i < rows_ * state_.acc_row; i += kLanes<T>) store(state_.acc + i, zero<T>());
  }

  /// One tile of keys for R rows.
  struct Tile {
    const SoftmaxRow& call;
    KeyRange keys;

    template <int R>
    FOVEA_INLINE void run(Index first) const {
      call.template add_tile<R>(first, keys);
    }
  };

  /// The rows [row, row + R), and what they see of a tile. Their weights begin at key `all.begin`.
  template <int R>
  struct Rows {
    Index first;
    KeyRange seen[R];
    KeyRange all;
    T rescale[R];
  };

  template <int R>
  FOVEA_NOINLINE void add_tile(Index first, const KeyRange& tile) const {
    Rows<R> rows;
    rows.first = first;
    rows.all = {tile.end, tile.begin};
    for (int r = 0; r < R; ++r) {
      rows.seen[r] = points_.seen_by((first + r) % args_.block.count).within(tile.begin, tile.end);
      if (rows.seen[r].empty()) continue;
      rows.all.begin = smaller(rows.all.begin, rows.seen[r].begin);
      rows.all.end = larger(rows.all.end, rows.seen[r].end);
    }
    if (rows.all.empty()) return;
    score(rows);
    for (int r = 0; r < R; ++r) weigh(rows, r);
    for (Index j = rows.all.begin; j < rows.all.end;) {
      const Index end = smaller(rows.all.end, (j / kChain + 1) * kChain);
      add_weights(rows, {j, end}, j == rows.all.begin);
      j = end;
    }
    for (int r = 0; r < R; ++r) drop(rows, r);
    for (Index j = rows.all.begin; j < rows.all.end;) {
      const Index end = smaller(rows.all.end, (j / kChain + 1) * kChain);
      add_values(rows, {j, end});
      j = end;
    }
  }

  const SoftmaxBlockArgs<T, S>& head_of(Index row) const {
    return args_.heads[row / args_.block.count];
  }
  /// The query row of a row of the call.
  Index query(Index row) const {
    return args_.block.first + args_.block.step * (row % args_.block.count);
  }
  Index position(Index row) const { return query(row) + head_.first_position; }

  /// Asks for as many keys as there are lanes, from point n on, if the run has them.
  FOVEA_INLINE void prefetch_keys(Index n) const {
    constexpr Index line = 64 / kStoredBytes<S, T>;
    if (n + kLanes < T >> points_.end) return;
    const Index k_row = points_.row_step * head_.k.row;
    const Index width = head_.width;
    const char* const k = static_cast<const char*>(head_.k.data);
    Index at = points_.row * head_.k.row + n * k_row;
    for (int i = 0; i < kLanes<T>; ++i, at += k_row) {
      for (Index c = 0; c < width; c += line) {
        __builtin_prefetch(k + (at + c) * kStoredBytes<S, T>, 0, 2);
      }
    }
  }

  /// Writes the score of row r and key j to weights_[r, j - all.begin].
  template <int R>
  FOVEA_INLINE void score(const Rows<R>& rows) const {
    const Index k_row = points_.row_step * head_.k.row;
    for (Index j = rows.all.begin; j < rows.all.end; j += kLanes<T>) {
      if (rows.first == 0) prefetch_keys(j + kKeysAhead);
      const KeyGroup<S, T> group{head_.k.data, points_.row * head_.k.row + j * k_row,
                                 k_row,        smaller(kLanes<T>, rows.all.end - j),
                                 head_.width,  queries_ + rows.first * q_row_,
                                 q_row_,       weights_ + (j - rows.all.begin)};
      group.template run<R>();
    }
  }

  /// Turns the scores of one row into weights, in place. Those of keys that it does not see become
  /// 0.
  template <int R>
  FOVEA_INLINE void weigh(Rows<R>& rows, int r) const {
    const Index keys = rows.all.end - rows.all.begin;
    T* weights = weights_ + r * kKeyTile;
    const Index row = rows.first + r;
    const ScoreMap<T>& map = head_of(row).map;
    if (map.changes_logits()) map_scores(map, row, rows.all, weights, visible_ + r * kKeyTile);
    const auto low = static_cast<Int<T>>(rows.seen[r].begin - rows.all.begin);
    const auto high = static_cast<Int<T>>(rows.seen[r].end - rows.all.begin);
    Vec<T> most = set1(kMinusInfinity<T>);
    IntVec<T> saw = set1_int<T>(0);
    for (Index j = 0; j < keys; j += kLanes<T>) {
      const IntVec<T> key = lane_index<T>() + set1_int<T>(static_cast<Int<T>>(j));
      IntVec<T> sees = ~(key < set1_int<T>(low)) & (key < set1_int<T>(high));
      if (map.hides()) {
        sees = sees & load_int<T>(visible_ + r * kKeyTile + j);
        store_int<T>(visible_ + r * kKeyTile + j, sees);
      }
      saw = saw | sees;
      const Vec<T> s = select(sees, load(weights + j), set1(kMinusInfinity<T>));
      store(weights + j, s);
      most = maximum(most, s);
    }
    if (any<T>(saw)) state_.saw[row] = 1;
    const Vec<T> before = set1(state_.max_logit[row]);
    const Vec<T> now = maximum(before, largest_lane(most));
    const Vec<T> shift = finite_shift(now);
    state_.max_logit[row] = now.raw[0];
    rows.rescale[r] = softmax_weight(before - shift).raw[0];
    const int lift = map.weight_lift;
    for (Index j = 0; j < keys; j += kLanes<T>) {
      store(weights + j, weight_at_lift(load(weights + j) - shift, lift));
    }
  }

  /// Applies the score map of one row to the keys of `keys`, and finds which of them it hides.
  /// \param scores, visible [keys]
  FOVEA_NOINLINE void map_scores(const ScoreMap<T>& map, Index row, const KeyRange& keys, T* scores,
                                 Int<T>* visible) const {
    const CapFactors<T> cap = cap_factors(map.soft_cap);
    const Matrix<const T> bias = row_of(map.bias, row);
    const Matrix<const bool> mask = row_of(map.mask, row);
    for (Index j = keys.begin; j < keys.end; j += kLanes<T>) {
      T* const p = scores + (j - keys.begin);
      Vec<T> t = load(p);
      IntVec<T> sees = set1_int<T>(-1);
      if (map.soft_cap != 0) t = cap_logits(t, cap);
      if (bias.data != nullptr) {
        const Vec<T> more = load_columns(bias.data, bias.column, j, keys.end);
        t = add_bias(t, more);
        sees = ~hides_pair(more);
      }
      if (mask.data != nullptr) sees = sees & load_mask(mask, j, keys.end);
      if (map.alibi_slope != 0) {
        t = subtract_alibi(
            t, alibi_factor(map.alibi_slope),
            lane_positions<T>(position(row) - points_.position(j), -points_.run.step));
      }
      store(p, t);
      if (map.hides()) store_int<T>(visible + (j - keys.begin), sees);
    }
  }

  /// One query's row of a matrix of logits; its columns are the points of the run.
  template <class X>
  Matrix<const X> row_of(const Matrix<const X>& m, Index row) const {
    if (m.data == nullptr) return {};
    return {m.data + query(row) * m.row + points_.phase * m.column, 0, m.column * points_.run.step};
  }

  /// The lane masks of keys [j, j + lanes), cut to `end`.
  static FOVEA_INLINE IntVec<T> load_mask(const Matrix<const bool>& mask, Index j, Index end) {
    alignas(kVecBytes) Int<T> lanes[kLanes<T>] = {};
    for (Index i = 0; i < smaller(kLanes<T>, end - j); ++i) {
      lanes[i] = mask.data[(j + i) * mask.column] ? -1 : 0;
    }
    return load_int<T>(lanes);
  }

  /// Computes the sums of one chain: what a row does not see adds 0.
  template <int R>
  FOVEA_INLINE void add_weights(Rows<R>& rows, const KeyRange& chain, bool first) const {
    const T* weights = weights_ + (chain.begin - rows.all.begin);
    T sum[R] = {};
    for (Index j = 0; j < chain.end - chain.begin; ++j) {
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) sum[r] += weights[r * kKeyTile + j];
    }
    for (int r = 0; r < R; ++r) {
      T& total = state_.sum[rows.first + r];
      total = fma_one(total, first ? rows.rescale[r] : T{1}, sum[r]);
    }
  }

  /// Multiplies the weights of one row by their dropout factors.
  template <int R>
  FOVEA_INLINE void drop(const Rows<R>& rows, int r) const {
    const Index row = rows.first + r;
    const DropoutMap& map = head_of(row).map.dropout;
    if (map.probability > 0) drop_weights(map, row, rows.all, weights_ + r * kKeyTile);
  }

  FOVEA_NOINLINE void drop_weights(const DropoutMap& map, Index row, const KeyRange& keys,
                                   T* weights) const {
    const DropoutLaw<T> law(map);
    const IntVec<T> i = lane_positions<T>(position(row), 0);
    for (Index j = keys.begin; j < keys.end; j += kLanes<T>) {
      T* const p = weights + (j - keys.begin);
      store(p, load(p) * law.factor(i, lane_positions<T>(points_.position(j), points_.run.step)));
    }
  }

  /// Adds the values of one chain: for all rows together if they see the same keys of it, otherwise
  /// row by row, so that nothing invisible is multiplied.
  template <int R>
  FOVEA_INLINE void add_values(Rows<R>& rows, const KeyRange& chain) const {
    KeyRange seen[R];
    for (int r = 0; r < R; ++r) seen[r] = rows.seen[r].within(chain.begin, chain.end);
    bool same = !seen[0].empty();
    for (int r = 0; r < R; ++r) {
      same = same && seen[r].begin == seen[0].begin && seen[r].end == seen[0].end &&
             !head_of(rows.first + r).map.hides();
    }
    if (same) {
      add_values_of<R, false>(rows.first, seen[0], rows.all.begin, 0, nullptr, rows.rescale);
      return;
    }
    for (int r = 0; r < R; ++r) {
      if (seen[r].empty()) continue;
      const Index row = rows.first + r;
      if (!head_of(row).map.hides()) {
        add_values_of<1, false>(row, seen[r], rows.all.begin, r, nullptr, rows.rescale + r);
        continue;
      }
      Index list[kChain];
      const Index offset = seen[r].begin - rows.all.begin;
      const Int<T>* visible = visible_ + r * kKeyTile + offset;
      Index n = 0;
      for (Index j = 0; j < seen[r].end - seen[r].begin; ++j) {
        if (visible[j] != 0) list[n++] = j;
      }
      seen[r].end = seen[r].begin + n;
      add_values_of<1, true>(row, seen[r], rows.all.begin, r, list, rows.rescale + r);
    }
  }

  /// Adds values to acc of rows [row, row + R), with rows [weight_row, ...) of weights_, which
  /// begin at key `from`.
  /// \param keys those of the chain, or with a list as many
  /// \param rescale becomes 1
  template <int R, bool kListed>
  FOVEA_INLINE void add_values_of(Index row, const KeyRange& keys, Index from, Index weight_row,
                                  const Index* list, T* rescale) const {
    const Index v_row = points_.row_step * head_.v.row;
    const Index behind = points_.end - (keys.begin / kChain + 1) * kChain;  // keys behind the chain
    const Index ahead = clamped(behind, 0, kKeysAhead);
    const ValueVectors<R, kListed, S, T> values{
        head_.v.data,
        points_.row * head_.v.row + keys.begin * v_row,
        v_row,
        keys.end - keys.begin,
        ahead,
        list,
        head_.value_width,
        weights_ + weight_row * kKeyTile + (keys.begin - from),
        rescale,
        state_.acc + row * state_.acc_row,
        state_.acc_row};
    constexpr int vectors = smaller(8, (kVecRegisters == 32 ? 16 : 8) / R);
    for_row_blocks<vectors>(0, head_.value_width / kLanes<T>, values);
    values.rest();
    for (int r = 0; r < R; ++r) rescale[r] = 1;
  }

  const SoftmaxRowArgs<T, S>& args_;
  const SoftmaxBlockArgs<T, S>& head_;  // the arguments that the heads share
  const Index rows_;
  const Index q_row_;
  RowSoftmax<T> state_;  // that of the segment
  RunPoints points_;     // those of its run
  T* const queries_;     // [rows, q_row_], scaled
  T* const weights_;     // [kRowsAtOnce, kKeyTile]
  // [kRowsAtOnce, kKeyTile] -1 where a pair is visible; only for rows whose map hides pairs
  Int<T>* const visible_;
};

/// Computes the running softmax of each segment of keys, for some rows of heads that share a key
/// head.
template <class T, Storage S>
void softmax_row(const SoftmaxRowArgs<T, S>& args) noexcept {
  SoftmaxRow<S, T>(args).run();
}
