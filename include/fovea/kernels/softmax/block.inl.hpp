// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of softmax attention for a block of queries over a list of key runs: the
/// running softmax of Milakov and Gimelshein 2018, with queries in the lanes. Cost: 2 (D + Dv)
/// flops for each computed pair; scratch O(rows (D + Dv)).

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/pair_tile.inl.hpp"
#include "fovea/kernels/softmax/running_softmax.inl.hpp"
#include "fovea/kernels/softmax/score_map_tile.inl.hpp"
#include "fovea/kernels/softmax/tile.inl.hpp"
#include "fovea/kernels/softmax/tile_rows.inl.hpp"
#endif

/// The memory to prefetch while scores are computed: rows of the next sub-block and keys of the
/// next tile, even beyond the block. Nothing beyond a tensor is read.
struct BlockPrefetcher {
  RowPrefetcher<0> queries;
  RowPrefetcher<1> outputs;
  RowPrefetcher<0> carried;
  RowPrefetcher<0> keys;
  RowPrefetcher<0> values;
  bool asks_more = false;  // for distant keys, if few sub-blocks prefetch

  FOVEA_INLINE void prefetch() {
    constexpr Index rows = 3;  // of each: more prefetches would queue
    queries.prefetch(rows);
    outputs.prefetch(rows);
    carried.prefetch(rows);
    keys.prefetch(rows);
    values.prefetch(rows);
    if (!asks_more) return;
    keys.prefetch(rows + 1);
    values.prefetch(rows + 1);
  }
};

/// One call: a block of queries, cut into sub-blocks of V vectors. Along a pattern's edges each
/// vector has its own keys, so that no key is computed that no lane sees.
template <int V, class T, Storage S>
class SoftmaxBlock {
 public:
  explicit SoftmaxBlock(const SoftmaxBlockArgs<T, S>& args)
      : args_(args),
        sub_size_(kQueries * (padded_size(args.width) + 2 * padded_size(args.value_width) + 5)),
        weights_(args.scratch + sub_blocks() * sub_size_),
        packed_k_(weights_ + kKeyTile * kQueries),
        packed_v_(packed_k_ + kKeyTile * padded_size(args.width)),
        visible_(reinterpret_cast<Int<T>*>(packed_v_ + kKeyTile * padded_size(args.value_width))) {}

  void run() {
    if (uses_classes(args_) && !args_.classes.is_packed) pack_classes(args_);
    for (Index r = 0; r < args_.block.run_count; ++r) process_run(r);
    for (Index sub = 0; sub < sub_blocks(); ++sub) finish(sub);
  }

 private:
  using Operand = OperandOf<S, T>;
  using Tile = KeyTile<T, S>;
  static constexpr Index kQueries = V * kLanes<T>;
  static constexpr Index kMostSubBlocks = (kMaxBlockRows + kQueries - 1) / kQueries;

  Index sub_blocks() const { return (args_.block.count + kQueries - 1) / kQueries; }
  Index rows_from(Index sub) const { return args_.block.count - sub * kQueries; }
  Index position(Index row) const { return args_.block.first + args_.block.step * row; }
  SubRows sub_rows(Index sub) const {
    return {position(sub * kQueries), args_.block.step, smaller(kQueries, rows_from(sub))};
  }

  // The scratch of a sub-block:
  /// [D padded, kQueries], scaled; or pairs, not scaled
  T* queries(Index sub) const { return args_.scratch + sub * sub_size_; }
  /// [kQueries] -1 if the query has seen a key, by pattern, mask and bias, not by logits.
  Int<T>* seen(Index sub) const {
    return reinterpret_cast<Int<T>*>(queries(sub) + padded_size(args_.width) * kQueries);
  }
  /// There are two: the current part's, and the total of earlier parts.
  RunningSoftmax<V, T> state(Index sub, bool second) const {
    const Index acc = padded_size(args_.value_width) * kQueries;
    T* at = queries(sub) + (padded_size(args_.width) + 1) * kQueries;
    if (second) at += 2 * kQueries + acc;
    return {at, at + kQueries, at + 2 * kQueries};
  }
  RunningSoftmax<V, T> part(Index sub) const { return state(sub, progress_[sub].swapped); }
  RunningSoftmax<V, T> total(Index sub) const { return state(sub, !progress_[sub].swapped); }

  /// A sub-block is begun at its first tile and finished after its last one, to overlap computing
  /// with loading its neighbours' queries and outputs.
  void begin(Index sub) {
    if (progress_[sub].begun) return;
    progress_[sub].begun = true;
    prefetch_rows(sub);
    const SubRows rows = sub_rows(sub);
    const StoredMatrix<S> q = every_row<T>(args_.q, rows.first, rows.step);
    if constexpr (kMultipliesPairs<S>) {
      column_pairs_to_lanes(q, rows.count, args_.width, operands<S, T>(queries(sub)), kQueries,
                            kQueries);
    } else {
      rows_to_lanes(q, rows.count, args_.width, logit_factor(args_.scale), queries(sub), kQueries);
    }
    FOVEA_UNROLL
    for (int v = 0; v < V; ++v) store_int<T>(seen(sub) + v * kLanes<T>, set1_int<T>(0));
    part(sub).clear();
    if (!args_.carry.resumes) return;
    resume_rows<V>(args_.carry, rows, total(sub), seen(sub));
    progress_[sub].has_total = true;
    progress_[sub].values_apart = true;
  }

  /// Prefetches the queries of the next sub-block and the output rows of this one.
  void prefetch_rows(Index sub) {
    const CarriedSoftmax<T>& carry = args_.carry;
    const SubRows rows = sub_rows(sub);
    prefetcher_.outputs = RowPrefetcher<1>::template of<T>(output_of(args_), rows.first, rows.step,
                                                           rows.count, args_.value_width);
    const SubRows next = sub + 1 < sub_blocks() ? sub_rows(sub + 1) : next_block();
    prefetcher_.queries =
        RowPrefetcher<0>::template of<T>(args_.q, next.first, next.step, next.count, args_.width);
    if (!carry.resumes) return;
    prefetcher_.carried = RowPrefetcher<0>::template of<T>(stored(carry.acc), next.first, next.step,
                                                           next.count, args_.value_width);
  }

  /// The first sub-block of the next block.
  SubRows next_block() const {
    const Index count = args_.next_block == 0 ? 0 : smaller(kQueries, args_.block.count);
    return {args_.block.first + args_.next_block, args_.block.step, count};
  }

  /// Prefetches the keys after [0, end) of run r: its own, the next run's, or the next block's,
  /// whose first key is mostly as far from this block's as its rows.
  void prefetch_keys(Index r, Index end) {
    if (uses_classes(args_)) return;
    const KeyRun* run = &args_.block.runs[r];
    Index first = run->first + run->step * end;
    if (end >= run->count) {
      const bool last = r + 1 == args_.block.run_count;
      if (!last) first = (++run)->first;
      if (last) first = args_.block.runs[0].first + args_.next_block;
      if (last && (first < 0 || args_.next_block == 0)) first = args_.key_end;
    }
    const Index keys = larger(0, (args_.key_end - first + run->step - 1) / run->step);
    const Index count = smaller(kKeyTile, keys);
    const Index row = args_.key_rows.row(first);
    const Index step = args_.key_rows.step(run->step);
    prefetcher_.asks_more = sub_blocks() <= 2 && run->step > 1;
    prefetcher_.keys = RowPrefetcher<0>::template of<T>(args_.k, row, step, count, args_.width);
    prefetcher_.values =
        RowPrefetcher<0>::template of<T>(args_.v, row, step, count, args_.value_width);
  }

  /// Finds the keys of a run visible to each vector of the block, and returns the union.
  VisibleKeys look(const KeyRun& run, VisibleKeys* seen) const {
    const Index count = run_keys(run, args_.key_end);
    VisibleKeys all{count, 0, 0, 0};
    for (Index v = 0; v < sub_blocks() * V; ++v) {
      const Index row = v * kLanes<T>;
      const VisibleKeys s =
          seen_keys(run, row, smaller(kLanes<T>, args_.block.count - row), 0, count);
      seen[v] = s;
      all.begin = smaller(all.begin, s.begin);
      all.end = larger(all.end, s.end);
    }
    return all;
  }

  void process_run(Index r) {
    const KeyRun& run = args_.block.runs[r];
    VisibleKeys seen[kMostSubBlocks * V];
    const VisibleKeys all = look(run, seen);
    // Tiles and segments begin at multiples of their size among the keys of this step and phase.
    const Index origin = run.first / run.step;
    for (Index t = all.begin; t < all.end;) {
      const Index end = smaller(all.end, ((origin + t) / kKeyTile + 1) * kKeyTile - origin);
      Tile tile(args_, run, t, end, sub_blocks(), packed_k_, packed_v_);
      prefetch_keys(r, end);
      for (Index sub = 0; sub < sub_blocks(); ++sub) {
        VisibleKeys of_tile[V];
        Index last = 0;
        for (int v = 0; v < V; ++v) {
          of_tile[v] = cut_to_tile(seen[sub * V + v], t, end);
          last = larger(last, seen[sub * V + v].end);
        }
        if (!add_tile(sub, tile, of_tile)) continue;
        if (last <= end && args_.block.run_count == 1) finish(sub);
      }
      if ((origin + end) % kKeySegment == 0 && end < all.end) merge_all();
      t = end;
    }
    if (args_.block.run_count > 1) merge_all();
  }

  /// The tile's part of the keys seen by some rows, relative to the tile's first key.
  static VisibleKeys cut_to_tile(const VisibleKeys& seen, Index begin, Index end) {
    VisibleKeys s;
    s.begin = larger(begin, seen.begin) - begin;
    s.end = larger(smaller(end, seen.end) - begin, s.begin);
    s.full_begin = clamped(seen.full_begin - begin, s.begin, s.end);
    s.full_end = clamped(seen.full_end - begin, s.full_begin, s.end);
    return s;
  }

  /// Adds one tile to one sub-block; returns whether the sub-block sees any of its keys.
  bool add_tile(Index sub, Tile& tile, VisibleKeys (&seen_of)[V]) {
    const ScoreMap<T>& map = args_.map;
    VectorKeys<V> keys;
    bool partial = false;
    for (int v = 0; v < V; ++v) {
      keys.begin[v] = seen_of[v].begin;
      keys.end[v] = seen_of[v].end;
      partial = partial || is_partial(seen_of[v]);
    }
    const Index first = keys.first();
    const Index last = keys.last();
    if (first >= last) return false;
    keys = keys.within(first, last);
    if (map.changes_logits()) {
      // The score map processes the keys of all vectors together.
      partial = partial || keys.wide_begin > first || keys.wide_end < last;
      keys = VectorKeys<V>::all(first, last);
    }
    begin(sub);
    alignas(kVecBytes) T most[kQueries];
    alignas(kVecBytes) T rescale[kQueries];
    score_keys<V>(tile.k.data, tile.k.row, keys, operands<S, T>(queries(sub)),
                  operand_steps<S, T>(args_.width), logit_factor(args_.scale), weights_, most,
                  prefetcher_);
    LaneBounds<V, T> bounds;
    if (partial) set_bounds(bounds, tile.run, sub * kQueries, rows_from(sub), tile.begin, last);
    TilePairs pairs{tile_place(sub, tile), partial ? &bounds : nullptr};
    for (int v = 0; v < V && !map.hides(); ++v) note_seen(sub, v, keys, pairs.bounds);
    if (map.changes_logits()) {
      map_tile(sub, pairs, first, last, most);
    } else {
      for (int v = 0; v < V; ++v) {
        const Index lane = v * kLanes<T>;
        if (!is_partial(seen_of[v])) continue;
        mask_vector<V>(bounds.lower + lane, bounds.upper + lane, seen_of[v], weights_ + lane,
                       most + lane);
      }
    }
    raise_maximum<V>(most, part(sub).max_logit, rescale);

    const bool hides = partial || map.hides() || tile.splits_pair(keys);
    pairs.select = hides && !tile.finite_values(args_.value_width);
    // Reduction blocks, too, begin at multiples of their size; the tile begins at one, or at the
    // run's first key.
    const Index origin = tile.run.first / tile.run.step + tile.begin;
    for (Index j = first; j < last;) {
      const Index end =
          smaller(last, ((origin + j) / kReductionBlock + 1) * kReductionBlock - origin);
      add_chain(sub, tile, keys.within(j, end), {j, end}, pairs, rescale);
      progress_[sub].has_part = true;
      for (T& r : rescale) r = 1;
      j = end;
    }
    return true;
  }

  /// Records which lanes of vector v see a key of a tile.
  FOVEA_INLINE void note_seen(Index sub, int v, const VectorKeys<V>& keys,
                              const LaneBounds<V, T>* bounds) const {
    if (keys.begin[v] >= keys.end[v]) return;
    Int<T>* at = seen(sub) + v * kLanes<T>;
    const IntVec<T> sees = bounds == nullptr ? set1_int<T>(-1) : bounds->sees_any(v);
    store_int<T>(at, load_int<T>(at) | sees);
  }

  static bool is_partial(const VisibleKeys& seen) {
    return seen.begin < seen.full_begin || seen.full_end < seen.end;
  }

  /// The visibility of the pairs of a tile and a sub-block.
  struct TilePairs {
    TilePlace place;
    const LaneBounds<V, T>* bounds;  // null: all are visible by the pattern
    bool select = false;             // whether hidden values must be skipped, not weighted by 0
  };

  TilePlace tile_place(Index sub, const Tile& tile) const {
    const KeyRun& run = tile.run;
    return {position(sub * kQueries),          args_.block.step, rows_from(sub),
            run.first + run.step * tile.begin, run.step,         args_.first_position};
  }

  /// Applies the score map to the logits of keys [begin, end); most = the largest of each query.
  void map_tile(Index sub, const TilePairs& pairs, Index begin, Index end, T* most) {
    const ScoreMap<T>& map = args_.map;
    if (map.soft_cap != 0) cap_tile<V>(map, begin, end, weights_, most);
    if (map.modifier.is_used()) {
      modify_tile<V, T>(map, pairs.place, begin, end, weights_, nullptr, most);
    }
    if (map.alibi_slope == 0 && !map.hides() && pairs.bounds == nullptr) return;
    shift_tile<V>(map, pairs.place, pairs.bounds, begin, end, weights_, seen(sub), most);
  }

  /// The keys of a tile in one reduction block, within [begin, end).
  struct Chain {
    Index begin;
    Index end;
  };

  void add_chain(Index sub, const Tile& tile, const VectorKeys<V>& keys, const Chain& chain,
                 const TilePairs& pairs, const T* rescale) {
    const ScoreMap<T>& map = args_.map;
    const RunningSoftmax<V, T> to = part(sub);
    for (int v = 0; v < V; ++v) {
      const Index lane = v * kLanes<T>;
      weight_chain<V>(weights_ + keys.begin[v] * kQueries + lane, keys.end[v] - keys.begin[v],
                      to.max_logit + lane, rescale + lane, map.exponent_bias, to.sum + lane);
    }
    if (map.drops()) {
      dropout_tile<V>(map.dropout, pairs.place, chain.begin, chain.end, weights_);
    }
    if constexpr (kMultipliesPairs<S>) {
      add_value_pairs(sub, tile, keys, chain, pairs, rescale);
    } else {
      add_values(sub, tile, keys, chain, pairs, rescale);
    }
  }

  void add_values(Index sub, const Tile& tile, const VectorKeys<V>& keys, const Chain& chain,
                  const TilePairs& pairs, const T* rescale) {
    const RunningSoftmax<V, T> to = part(sub);
    const bool first = !progress_[sub].has_part;
    if (!pairs.select) {
      value_chain<V>(tile.v.data, tile.v.row, keys, args_.value_width, weights_,
                     first ? nullptr : rescale, to.acc);
      return;
    }
    if (first) to.clear_values(args_.value_width);
    find_visible(chain, pairs);
    value_chain_selected<V>(tile.v.data + chain.begin * tile.v.row, tile.v.row,
                            chain.end - chain.begin, args_.value_width, visible_,
                            weights_ + chain.begin * kQueries, rescale, to.acc);
  }

  /// The same with weights rounded to bfloat16.
  void add_value_pairs(Index sub, const Tile& tile, const VectorKeys<V>& keys, const Chain& chain,
                       const TilePairs& pairs, const T* rescale) {
    const RunningSoftmax<V, T> to = part(sub);
    const bool first = !progress_[sub].has_part;
    const ChainPairs<V> in_pairs(keys, tile.odd, chain.begin, chain.end);
    alignas(kVecBytes) Operand weights[kReductionBlock / 2 * kQueries];
    in_pairs.round_weights(weights_, weights);
    const Operand* const v = tile.v.data + in_pairs.first * tile.v.row;
    if (!pairs.select) {
      value_chain<V>(v, tile.v.row, in_pairs.pairs, args_.value_width, weights,
                     first ? nullptr : rescale, to.acc);
      return;
    }
    if (first) to.clear_values(args_.value_width);
    find_visible(chain, pairs);
    in_pairs.mask_pairs_of(chain.begin, visible_);
    value_pairs_selected<V>(v, tile.v.row, in_pairs.pairs, args_.value_width, visible_, weights,
                            rescale, to.acc);
  }

  /// Writes the lane masks of the keys of a reduction block.
  void find_visible(const Chain& chain, const TilePairs& pairs) const {
    for (Index j = chain.begin; j < chain.end; ++j) {
      for (int v = 0; v < V; ++v) {
        store_int<T>(visible_ + ((j - chain.begin) * V + v) * kLanes<T>,
                     visible_lanes<V>(args_.map, pairs.place, pairs.bounds, j, v));
      }
    }
  }

  /// Ends a run or a segment of it: merges its softmax into the total, and starts an empty one. The
  /// division depends only on keys, so a row's bits depend only on its visible keys, and a decoder
  /// can distribute segments.
  void merge_all() {
    for (Index sub = 0; sub < sub_blocks(); ++sub) {
      Progress& progress = progress_[sub];
      if (!progress.has_part) continue;
      end_part(sub);
      progress.has_part = false;
      part(sub).clear();
    }
  }

  void end_part(Index sub) {
    Progress& progress = progress_[sub];
    if (!progress.has_total) {
      progress.swapped = !progress.swapped;
      progress.has_total = true;
      return;
    }
    if (progress.values_apart) {
      resume_values<V>(args_.carry, sub_rows(sub), args_.value_width, total(sub));
      progress.values_apart = false;
    }
    total(sub).merge(part(sub), args_.value_width);
  }

  /// Ends a sub-block: merges its last part, and writes it.
  void finish(Index sub) {
    Progress& progress = progress_[sub];
    if (progress.finished) return;
    begin(sub);
    progress.finished = true;
    if (!progress.has_part) part(sub).clear_values(args_.value_width);
    const bool merges = progress.values_apart;
    if (!merges && (progress.has_part || !progress.has_total)) end_part(sub);
    finish_rows<V>(args_, sub_rows(sub), merges ? part(sub) : total(sub), merges, total(sub),
                   seen(sub));
  }

  struct Progress {
    bool begun = false;
    bool has_part = false;
    bool has_total = false;
    bool swapped = false;       // which state is the total
    bool values_apart = false;  // whether its values are still where the previous pass left them
    bool finished = false;
  };

  const SoftmaxBlockArgs<T, S>& args_;
  const Index sub_size_;  // elements of a sub-block's scratch
  T* const weights_;      // [kKeyTile, kQueries]
  T* const packed_k_;     // [kKeyTile, D padded]
  T* const packed_v_;     // [kKeyTile, Dv padded]
  Int<T>* const
      visible_;  // [kReductionBlock, kQueries] lane masks of the pairs of a reduction block
  BlockPrefetcher prefetcher_;
  Progress progress_[kMostSubBlocks] = {};
};
