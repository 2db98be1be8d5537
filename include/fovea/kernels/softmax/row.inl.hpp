// SPDX-License-Identifier: MIT
/// \file
/// Softmax attention of a few query rows over segments of keys. Keys are transposed, so that they
/// are in the lanes: the scores are the block kernel's product with K in place of Q. Each logit,
/// sum and weighted sum is the same sequence of operations as in block.inl.hpp: tiles and reduction
/// blocks begin at the same points of a run, and invisible keys add nothing. So the bits are the
/// same. Cost: 2 (D + Dv) flops for each pair, and for each key at most log2(lanes) D / lanes
/// shuffles.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/row_map.inl.hpp"
#include "fovea/kernels/softmax/row_products.inl.hpp"
#include "fovea/kernels/softmax/tile.inl.hpp"
#include "fovea/simd/lane_sums.inl.hpp"
#include "fovea/simd/row_dots.inl.hpp"
#include "fovea/simd/rows_to_lanes.inl.hpp"
#endif

/// One call: the rows of some heads, segment by segment.
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
        transposed_(queries_ + rows_ * q_row_),
        values_(transposed_ + q_row_ * kTransposedKeys),
        tiles_(values_ + kReductionBlock * padded_size(head_.value_width)),
        visible_(reinterpret_cast<Int<T>*>(tiles_ + kRowsAtOnce * kKeyTile)) {}

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
  using Operand = OperandOf<S, T>;
  static constexpr Index kTransposedKeys = KeyScores<Operand, T>::kRow;

  /// Whether k and v are read as streams, which the hardware prefetcher follows: all their rows,
  /// for one query.
  FOVEA_INLINE bool is_stream() const { return rows_ == 1 && points_.row_step == 1; }

  /// Adds the keys of a segment. Of a stream, the scores of all of them are computed before the
  /// first values are read: long streams are read faster.
  void add_segment(const KeyRange& all) {
    const Index tiles = is_stream() ? kRowsAtOnce : 1;
    static_assert(kRowsAtOnce * kKeyTile == kKeySegment);
    for (Index begin = all.begin; begin < all.end;) {
      const Index end = smaller(all.end, (begin / kKeyTile + tiles) * kKeyTile);
      for (Index first = 0; first < rows_; first += kRowsAtOnce) {
        add_rows({first, smaller(kRowsAtOnce, rows_ - first), {}, {}}, {begin, end});
      }
      begin = end;
    }
  }

  void load_queries() const {
    for (Index r = 0; r < rows_; ++r) {
      const SoftmaxBlockArgs<T, S>& head = head_of(r);
      const Index from = query(r) * head.q.row;
      const Vec<T> factor = set1(logit_factor(head.scale));
      T* const to = queries_ + r * q_row_;
      if constexpr (kMultipliesPairs<S>) {
        pack_column_pairs(every_row<T>(head.q, query(r), 1), 1, head.width, operands<S, T>(to), 0);
        continue;
      }
      for (Index c = 0; c < head.width; c += kLanes<T>) {
        const Vec<T> x = load_columns<S, T>(head.q.data, from, head.q.column, c, head.width);
        store(to + c, x * factor);
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

  /// Some rows of the call, and their visible keys of the tile.
  struct Rows {
    Index first;
    Index count;
    KeyRange seen[kRowsAtOnce];
    T rescale[kRowsAtOnce];
  };

  void add_rows(Rows rows, const KeyRange& keys) {
    for_tiles(keys, [&] { score(rows); });
    for_tiles(keys, [&] { add_tile(rows); });
  }

  /// Calls `visit()` for each tile of some keys, of which only visible ones are accessed.
  template <class Visit>
  FOVEA_INLINE void for_tiles(const KeyRange& all, const Visit& visit) {
    weights_ = tiles_;
    for (Index begin = all.begin; begin < all.end; weights_ += kKeyTile) {
      const Index end = smaller(all.end, (begin / kKeyTile + 1) * kKeyTile);
      keys_ = seen_keys({begin, end});
      if (!keys_.empty()) visit();
      begin = end;
    }
  }

  /// The keys of a tile from the first to the last one that some row sees.
  KeyRange seen_keys(const KeyRange& tile) const {
    KeyRange keys{tile.end, tile.begin};
    for (Index i = 0; i < args_.block.count; ++i) {
      const KeyRange seen = points_.seen_by(i).within(tile.begin, tile.end);
      if (seen.empty()) continue;
      keys = {smaller(keys.begin, seen.begin), larger(keys.end, seen.end)};
    }
    return keys;
  }

  /// Adds one tile of keys, whose scores are computed.
  FOVEA_NOINLINE void add_tile(Rows& rows) const {
    for (Index r = 0; r < rows.count; ++r) {
      rows.seen[r] =
          points_.seen_by((rows.first + r) % args_.block.count).within(keys_.begin, keys_.end);
      weigh(rows, r);
    }
    for (Index j = keys_.begin; j < keys_.end;) {
      const KeyRange chain{j, smaller(keys_.end, (j / kReductionBlock + 1) * kReductionBlock)};
      for_few_rows(rows.count, WeightSums<T>{weights_ + (j - keys_.begin), chain.end - j,
                                             rows.rescale, state_.sum + rows.first});
      for (Index r = 0; r < rows.count; ++r) {
        const Index row = rows.first + r;
        if (head_of(row).map.drops()) row_map(row).drop(chain, weights_ + r * kKeyTile);
      }
      add_values(rows, chain);
      for (T& rescale : rows.rescale) rescale = 1;
      j = chain.end;
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

  /// The rows of k or v that hold points [n, ...) of the run.
  StoredMatrix<S> rows_of_points(const StoredMatrix<S>& m, Index n) const {
    return every_row<T>(m, points_.row + n * points_.row_step, points_.row_step);
  }

  /// Prefetches `count` keys from point n on; none if the run has fewer.
  FOVEA_INLINE RowPrefetcher<0> keys_ahead(Index n, Index count) const {
    if (points_.end - n < count) return {};
    return RowPrefetcher<0>::template of<T>(head_.k, points_.row + n * points_.row_step,
                                            points_.row_step, count, head_.width);
  }

  /// The rows of register blocks that transpose keys, and the most rows for which each block
  /// transposes them again: for more, storing the transposed keys is faster.
  static constexpr int kDotBlockRows =
      kIsCompact ? 1 : (kVecRegisters == 32 || S != Storage::float16 ? 4 : 2);
  static constexpr Index kMostDotRows = Index{kVecRegisters == 32 ? 2 : 1} * kDotBlockRows;
  static_assert(kMostDotRows <= kRowsAtOnce);

  /// Writes the score of row r and key j to weights_[r, j - keys_.begin].
  FOVEA_INLINE void score(const Rows& rows) const {
    if (rows.count == 1) return score_in_registers<1>(rows);
    if (rows.count <= kMostDotRows) return score_in_registers<kDotBlockRows>(rows);
    // Keys are transposed in batches that stay in the first-level cache.
    for (Index j = keys_.begin; j < keys_.end; j += kTransposedKeys) {
      transpose_keys({j, smaller(keys_.end, j + kTransposedKeys)});
      for_row_blocks<kRowsOfBlock>(
          0, rows.count,
          KeyScores<Operand, T>{operands<S, T>(queries_ + rows.first * q_row_), q_row_,
                                operands<S, T>(transposed_), operand_steps<S, T>(head_.width),
                                logit_factor(head_.scale), weights_ + (j - keys_.begin)});
    }
  }

  FOVEA_NOINLINE void transpose_keys(const KeyRange& keys) const {
    for (Index j = keys.begin; j < keys.end; j += kLanes<T>) {
      keys_ahead(j + kKeysAhead, kLanes<T>).prefetch(kLanes<T>);
      const StoredMatrix<S> k = rows_of_points(head_.k, j);
      const Index count = smaller(kLanes<T>, keys.end - j);
      T* const to = transposed_ + (j - keys.begin);
      if constexpr (kMultipliesPairs<S>) {
        column_pairs_to_lanes(k, count, head_.width, operands<S, T>(to), kTransposedKeys,
                              kLanes<T>);
      } else {
        rows_to_lanes(k, count, head_.width, T{1}, to, kTransposedKeys, kLanes<T>);
      }
    }
  }

  /// The scores of blocks of R rows, whose keys are transposed in registers.
  template <int R>
  FOVEA_NOINLINE void score_in_registers(const Rows& rows) const {
    constexpr Index batch = kDotRows<R, S, T>;
    const Index row_keys =
        smaller(kRowBytesAhead / larger(1, head_.width * kStoredBytes<S, T>), kRowKeysAhead);
    const bool is_first_level = R == 1 && is_stream() && row_keys >= batch;
    const Index distance = is_first_level ? row_keys : kKeysAhead;
    for (Index next = keys_.begin; next < keys_.end; next += batch) {
      // The last keys are computed with keys before them, if there are enough.
      const Index j = larger(keys_.begin, smaller(next, keys_.end - batch));
      RowPrefetcher<0> ahead = keys_ahead(j + distance, batch);
      if (is_first_level) ahead.to_first_level();
      for (Index r = 0; r < rows.count; r += R) {
        const DotOperands<R, Operand> q(operands<S, T>(queries_ + (rows.first + r) * q_row_),
                                        q_row_, rows.count - r);
        DotBlock<R, S, T> total;
        total.clear();
        find_dots<R>(rows_of_points(head_.k, j), smaller(batch, keys_.end - j), head_.width, q,
                     ahead, false, total);
        ahead = {};
        total.template scale_products<Operand>(logit_factor(head_.scale));
        // Rows of the block beyond the last one have memory, too, which is not read.
        total.store_to(weights_ + r * kKeyTile + (j - keys_.begin), kKeyTile);
      }
    }
  }

  /// Turns the scores of one row into weights, in place. Those of invisible keys become 0.
  FOVEA_INLINE void weigh(Rows& rows, Index r) const {
    const Index keys = keys_.end - keys_.begin;
    T* weights = weights_ + r * kKeyTile;
    const Index row = rows.first + r;
    const ScoreMap<T>& map = head_of(row).map;
    if (map.changes_logits()) row_map(row).apply(weights, visible_ + r * kKeyTile);
    const auto low = static_cast<Int<T>>(rows.seen[r].begin - keys_.begin);
    const auto high = static_cast<Int<T>>(rows.seen[r].end - keys_.begin);
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
    const int lift = map.exponent_bias;
    for (Index j = 0; j < keys; j += kLanes<T>) {
      store(weights + j, weight_at_lift(load(weights + j) - shift, lift));
    }
  }

  /// The score map of a row, for the keys of the tile.
  FOVEA_INLINE RowMap<T> row_map(Index row) const {
    return {head_of(row).map, points_, keys_, query(row), position(row)};
  }

  /// Adds the values of one reduction block. Hidden pairs have weight 0, which suppresses all
  /// values but NaN and infinity: if there are any, each row adds only its visible values.
  FOVEA_INLINE void add_values(const Rows& rows, const KeyRange& chain) const {
    if constexpr (kMultipliesPairs<S>) {
      alignas(kVecBytes) Operand weights[kRowsAtOnce * kWeightPairs];
      round_weights(weights_ + (chain.begin - keys_.begin), rows.count, chain.begin % 2,
                    chain.end - chain.begin, weights);
      add_values(rows, chain, weights);
    } else {
      add_values(rows, chain, weights_ + (chain.begin - keys_.begin));
    }
  }

  FOVEA_INLINE void add_values(const Rows& rows, const KeyRange& chain,
                               const Operand* weights) const {
    const StoredMatrix<S> v = rows_of_points(head_.v, chain.begin);
    if (hides_some(rows, chain) && !finite_values(v, chain.end - chain.begin)) {
      return add_visible_values(rows, chain, weights);
    }
    Index c = 0;
    if (v.column == 1) {
      // A single row reads whole rows of V at a time, sequentially.
      if (!kIsCompact && rows.count == 1) c = add_columns<8>(rows, chain, v, weights, c);
      c = add_columns<kRowVectors>(rows, chain, v, weights, c);
    }
    add_columns<1>(rows, chain, v, weights, c);
  }

  /// Adds the columns from c on that fill V vectors, or all of them one by one. Returns the first
  /// remaining column.
  template <int V>
  FOVEA_INLINE Index add_columns(const Rows& rows, const KeyRange& chain, const StoredMatrix<S>& v,
                                 const Operand* weights, Index c) const {
    const Index behind = points_.end - (chain.begin / kReductionBlock + 1) *
                                           kReductionBlock;  // keys after the block
    const bool is_followed = is_stream() && head_.value_width <= kStreamedColumns;
    const Index ahead = is_followed ? 0 : clamped(behind, 0, kKeysAhead);
    const Index width = V == 1 ? padded_size(head_.value_width, kLanes<T>) : head_.value_width;
    for (; c + V * kLanes<T> <= width; c += V * kLanes<T>) {
      const WeightedValues<V, S, T> values{v,
                                           c,
                                           head_.value_width,
                                           kMultipliesPairs<S> ? chain.begin % 2 : 0,
                                           chain.end - chain.begin,
                                           ahead,
                                           weights,
                                           rows.rescale,
                                           state_.acc + rows.first * state_.acc_row,
                                           state_.acc_row};
      if constexpr (V > kRowVectors || V == 1) {
        for (Index r = 0; r < rows.count; ++r) values.template run<1>(r);
      } else {
        for_few_rows(rows.count, values);
      }
    }
    return c;
  }

  /// Whether `keys` values are finite.
  FOVEA_NOINLINE bool finite_values(const StoredMatrix<S>& v, Index keys) const {
    const Index row = padded_size(head_.value_width);
    pack_rows(v, keys, head_.value_width, values_, row);
    return all_finite(values_, row, keys, head_.value_width);
  }

  /// Whether some row does not see some key of a reduction block.
  bool hides_some(const Rows& rows, const KeyRange& chain) const {
    for (Index r = 0; r < rows.count; ++r) {
      const KeyRange seen = rows.seen[r].within(chain.begin, chain.end);
      if (seen.begin != chain.begin || seen.end != chain.end) return true;
      if (head_of(rows.first + r).map.hides()) return true;
    }
    return false;
  }

  /// The same bits, skipping hidden keys.
  /// \pre finite_values has packed the values of the block
  FOVEA_NOINLINE void add_visible_values(const Rows& rows, const KeyRange& chain,
                                         const Operand* weights) const {
    const Index row = padded_size(head_.value_width);
    for (Index r = 0; r < rows.count; ++r) {
      const bool hides = head_of(rows.first + r).map.hides();
      const KeyRange seen = rows.seen[r].within(chain.begin, chain.end);
      T* const acc = state_.acc + (rows.first + r) * state_.acc_row;
      for (Index c = 0; c < head_.value_width; c += kLanes<T>) {
        Vec<T> sum = zero<T>();
        if constexpr (kMultipliesPairs<S>) {
          const Operand* weight = weights + r * kWeightPairs;
          for (Index j = chain.begin / 2 * 2; j < chain.end; j += 2, ++weight) {
            const IntVec<T> values =
                exact_pairs(visible_value(r, seen, hides, j, chain.begin, c),
                            visible_value(r, seen, hides, j + 1, chain.begin, c));
            sum = dot_pairs(values, set1_operand(*weight), sum);
          }
        } else {
          for (Index j = seen.begin; j < seen.end; ++j) {
            const Index at = r * kKeyTile + (j - keys_.begin);
            if (hides && visible_[at] == 0) continue;
            sum = fma(load(values_ + (j - chain.begin) * row + c), set1(weights_[at]), sum);
          }
        }
        store(acc + c, fma(load(acc + c), set1(rows.rescale[r]), sum));
      }
    }
  }

  /// `lanes` columns from c on of a key's values, 0 if row r does not see the key.
  FOVEA_INLINE Vec<T> visible_value(Index r, const KeyRange& seen, bool hides, Index key,
                                    Index first_key, Index c) const {
    if (key < seen.begin || key >= seen.end) return zero<T>();
    if (hides && visible_[r * kKeyTile + (key - keys_.begin)] == 0) return zero<T>();
    return load(values_ + (key - first_key) * padded_size(head_.value_width) + c);
  }

  const SoftmaxRowArgs<T, S>& args_;
  const SoftmaxBlockArgs<T, S>& head_;  // the heads' common arguments
  const Index rows_;
  const Index q_row_;
  RowSoftmax<T> state_;   // of the segment
  RunPoints points_;      // of its run
  KeyRange keys_{};       // the tile's keys seen by some row
  T* weights_ = nullptr;  // [rows, kKeyTile] the tile's scores, then its weights
  T* const queries_;      // [rows, q_row_], scaled; or pairs, not scaled
  T* const transposed_;   // [D padded, kTransposedKeys] some keys of the tile
  T* const values_;  // [kReductionBlock, Dv padded] the values of a reduction block, where they
                     // must be checked
  T* const tiles_;   // [kRowsAtOnce, kKeyTile] the weights of one tile, or of one row's tiles
  // [kRowsAtOnce, kKeyTile] -1 for visible pairs; only for rows whose map hides pairs
  Int<T>* const visible_;
};

/// Computes the running softmax of each segment of keys, for some rows of heads that share a key
/// head.
template <class T, Storage S>
void softmax_row(const SoftmaxRowArgs<T, S>& args) noexcept {
  SoftmaxRow<S, T>(args).run();
}
