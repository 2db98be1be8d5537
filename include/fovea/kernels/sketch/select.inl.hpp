// SPDX-License-Identifier: MIT
/// \file
/// The keys that each head of a row keeps (Smart Bird, eqs. 2 and 3, section 3.1). They are exactly
/// those of the K largest scores s = u p, though few draws are made. Candidates are found first, by
/// a threshold that the wanted number of keys is expected to pass, and draws are made for these
/// alone. If fewer than K pass after all, the threshold is lowered.

#if !defined(FOVEA_LEVEL)  // Read alone: what it stands on.
#pragma once
#include "fovea/kernels/sketch/candidates.inl.hpp"
#include "fovea/simd/wide.inl.hpp"
#endif

/// One call under one policy.
template <SamplingPolicy P, class T>
class SketchSelect {
 public:
  explicit SketchSelect(const SketchSelectArgs<T>& args)
      : args_(args),
        room_(sketch_room(args.key_end)),
        scores_(static_cast<T*>(args.scratch)),
        hit_draws_(scores_ + kSketchRows * room_),
        hit_losses_(hit_draws_ + room_),
        hits_(reinterpret_cast<Int<T>*>(hit_losses_ + room_)),
        candidates_(reinterpret_cast<T*>(hits_ + room_), room_),
        q_(hit_draws_ + 6 * room_),
        hit_scores_(reinterpret_cast<std::int64_t*>(q_ + sketch_room(kSketchRows * args.width))) {}

  void run() {
    for (Index first = 0; first < args_.rows; first += kSketchRows) {
      const Index count = smaller(kSketchRows, args_.rows - first);
      if constexpr (P != SamplingPolicy::random) score(first, count);
      for (Index r = 0; r < count; ++r) choose(first + r, r);
    }
  }

 private:
  /// The number of keys that a row sees.
  Index visible(Index row) const {
    if (!args_.causal) return args_.key_end;
    return clamped(args_.first_position + row + 1, 0, args_.key_end);
  }

  /// Computes the logits of a few rows.
  void score(Index first, Index count) {
    const T factor = args_.scale * MathConstants<T>::kLog2E;
    for (Index c = 0; c < args_.width; ++c) {
      for (Index r = 0; r < kSketchRows; ++r) {
        const Index row = first + smaller(r, count - 1);
        q_[c * kSketchRows + r] = args_.q.data[row * args_.q.row + c * args_.q.column] * factor;
      }
    }
    // First come whole vectors that all of the rows see, and then those that some see.
    all_see_ = visible(first) / kLanes<T> * kLanes<T>;
    FOVEA_UNROLL
    for (int r = 0; r < kSketchRows; ++r) most_[r] = set1(-MathConstants<T>::kInfinity);
    add_logits(0, all_see_, most_);
    Vec<T> unused[kSketchRows] = {};
    add_logits(all_see_, visible(first + count - 1), unused);
  }

  void add_logits(Index begin, Index end, Vec<T> (&most)[kSketchRows]) const {
    if (args_.width == 4) {
      sketch_logits<kSketchRows, 4>(q_, args_.keys, args_.keys_row, 4, begin, end, scores_, room_,
                                    most);
    } else {
      sketch_logits<kSketchRows, 0>(q_, args_.keys, args_.keys_row, args_.width, begin, end,
                                    scores_, room_, most);
    }
  }

  /// Chooses the keys of a row for all heads.
  /// \param r the row's place among those that were scored together
  void choose(Index row, Index r) {
    SketchRow<T> sketch;
    const Index keys = visible(row);
    if constexpr (P == SamplingPolicy::random) {
      sketch = {nullptr, keys, 0, 0, true};
    } else {
      sketch = sketch_row(scores_ + r * room_, all_see_, keys, most_[r]);
    }
    const bool is_number = sketch.is_number || keys == 0;
    if (args_.is_number != nullptr) args_.is_number[row] = is_number;
    if (keys <= args_.chosen || !is_number) {
      for (Index h = 0; h < args_.heads; ++h) write_first(h, row, smaller(keys, args_.chosen));
      return;
    }
    T wanted = first_guess();
    candidates_.find(sketch, wanted);
    for (Index h = 0; h < args_.heads; ++h) {
      if (P == SamplingPolicy::top_k && h > 0) {
        repeat_head(h, row);
        continue;
      }
      while (!choose_for_head(h, row)) {
        wanted *= 2;
        candidates_.find(sketch, wanted);
      }
    }
  }

  Index* index_row(Index h, Index row) const {
    return args_.indices + h * args_.indices_head + row * args_.indices_row;
  }

  /// Writes the first `count` keys, and nothing else.
  void write_first(Index h, Index row, Index count) const {
    Index* const to = index_row(h, row);
    for (Index n = 0; n < args_.chosen; ++n) to[n * args_.indices_column] = n < count ? n : -1;
  }

  /// Writes what head 0 keeps.
  void repeat_head(Index h, Index row) const {
    const Index* const from = index_row(0, row);
    Index* const to = index_row(h, row);
    for (Index n = 0; n < args_.chosen; ++n) {
      to[n * args_.indices_column] = from[n * args_.indices_column];
    }
  }

  /// The number of keys to expect above a threshold so that one head of a hundred finds fewer than
  /// K.
  T first_guess() const {
    const T most = static_cast<T>(args_.chosen);
    if constexpr (P == SamplingPolicy::top_k) return most;
    T root = 1;  // the square root of K, from above
    while (root * root < most) root += 1;
    return most + T(2.5) * root + 2;
  }

  /// Draws for the candidates, keeps those that pass, and returns their number.
  FOVEA_NOINLINE Index draw(Index h, Index row) {
    const auto position = static_cast<std::uint32_t>(args_.first_position + row);
    const RowDraws draws({args_.seed, args_.batch, static_cast<std::uint32_t>(h)}, position);
    Index hits = 0;
    IntVec<T> at = lane_index<T>();
    for (Index n = 0; n < candidates_.count(); n += kDrawVectors<T> * kLanes<T>) {
      IntVec<T> keys[kDrawVectors<T>];
      FOVEA_UNROLL
      for (int v = 0; v < kDrawVectors<T>; ++v) {
        keys[v] = load_int<T>(candidates_.keys() + n + v * kLanes<T>);
      }
      IntVec<T> numerators[kDrawVectors<T>];
      draws.numerators<kDrawVectors<T>, T>(keys, numerators);
      FOVEA_UNROLL
      for (int v = 0; v < kDrawVectors<T>; ++v) {
        const Vec<T> draw{__builtin_convertvector(numerators[v].raw, typename Vec<T>::Raw)};
        hits = add_hits(hits, at, draw, n + v * kLanes<T>);
        at = at + set1_int<T>(kLanes<T>);
      }
    }
    return hits;
  }

  /// Does the same with draws that are given.
  FOVEA_NOINLINE Index read_draws(Index h, Index row) {
    const T* const draws = args_.draws + h * args_.draws_head + row * args_.draws_row;
    Index hits = 0;
    IntVec<T> at = lane_index<T>();
    for (Index n = 0; n < candidates_.count(); n += kLanes<T>) {
      alignas(kVecBytes) T lanes[kLanes<T>] = {};
      for (Index lane = 0; lane < smaller(kLanes<T>, candidates_.count() - n); ++lane) {
        // A draw that is NaN counts as the smallest one.
        const T given = draws[candidates_.keys()[n + lane] * args_.draws_column];
        lanes[lane] = given > 0 ? given * kDraws<T> : 0;
      }
      hits = add_hits(hits, at, load(lanes), n);
      at = at + set1_int<T>(kLanes<T>);
    }
    return hits;
  }

  FOVEA_INLINE Index add_hits(Index hits, IntVec<T> at, Vec<T> draw, Index n) {
    const std::uint32_t passed = mask_bits(draw > load(candidates_.least() + n));
    store_lanes_int<T>(hits_ + hits, at, passed);
    store_lanes(hit_draws_ + hits, draw, passed);
    store_lanes(hit_losses_ + hits, load(candidates_.losses() + n), passed);
    return hits + bit_count(passed);
  }

  /// Keeps all candidates, if nothing is drawn.
  Index take_candidates() {
    IntVec<T> at = lane_index<T>();
    for (Index n = 0; n < candidates_.count(); n += kLanes<T>) {
      store_int<T>(hits_ + n, at);
      store(hit_draws_ + n, zero<T>());
      store(hit_losses_ + n, load(candidates_.losses() + n));
      at = at + set1_int<T>(kLanes<T>);
    }
    return candidates_.count();
  }

  /// Writes the hits' scores as integers of the same order, with the smallest integer behind them,
  /// and returns one more than the largest.
  FOVEA_NOINLINE std::int64_t score_hits(Index hits) {
    constexpr Index w = kLanes<double>;
    constexpr std::int64_t least = (std::numeric_limits<std::int64_t>::min)();
    IntVec<double> high = set1_int<double>(least);
    for (Index n = 0; n < hits; n += w) {
      const Vec<double> u = load_wide(hit_draws_ + n) * set1(1 / static_cast<double>(kDraws<T>));
      const Vec<double> loss = load_wide(hit_losses_ + n);
      const IntVec<double> score = ordered_bits(sampling_score<P>(u, loss));
      const IntVec<double> is_hit = lane_index<double>() < set1_int<double>(hits - n);
      const IntVec<double> order{is_hit.raw ? score.raw : set1_int<double>(least).raw};
      high.raw = order.raw > high.raw ? order.raw : high.raw;
      store_int<double>(hit_scores_ + n, order);
    }
    alignas(kVecBytes) std::int64_t lanes[w];
    store_int<double>(lanes, high);
    for (Index lane = 1; lane < w; ++lane) lanes[0] = larger(lanes[0], lanes[lane]);
    return lanes[0] + 1;
  }

  /// Chooses the keys of one head. Returns whether enough keys scored above the bound; only then
  /// are the head's keys written.
  bool choose_for_head(Index h, Index row) {
    const Index hits = P == SamplingPolicy::top_k ? take_candidates()
                       : args_.draws == nullptr   ? draw(h, row)
                                                  : read_draws(h, row);
    if (hits < args_.chosen) return false;
    const std::int64_t high = score_hits(hits);
    constexpr std::int64_t least = (std::numeric_limits<std::int64_t>::min)();
    if (candidates_.bound() != least &&
        count_at_least(hit_scores_, hits, candidates_.bound()) < args_.chosen)
      return false;
    write(h, row, hits,
          largest_numbers(hit_scores_, hits, args_.chosen, larger(candidates_.bound(), least + 1),
                          high));
    return true;
  }

  /// Writes the keys without a branch for each hit, which the hardware could not predict.
  FOVEA_NOINLINE void write(Index h, Index row, Index hits, LargestNumbers largest) const {
    Index count = 0;
    for (Index n = 0; n < hits; ++n) {
      const std::int64_t score = hit_scores_[n];
      const bool is_equal = score == largest.value;
      const bool is_kept = (score > largest.value) | (is_equal & (largest.equal > 0));
      hits_[count] = candidates_.keys()[hits_[n]];  // count <= n, so no hit is lost
      count += is_kept ? 1 : 0;
      largest.equal -= is_equal ? 1 : 0;
    }
    Index* const to = index_row(h, row);
    for (Index n = 0; n < args_.chosen; ++n) to[n * args_.indices_column] = hits_[n];
  }

  const SketchSelectArgs<T>& args_;
  Index room_;
  T* scores_;      // [kSketchRows, room_]
  T* hit_draws_;   // numerators of the draws that passed
  T* hit_losses_;  // losses of the same candidates
  Int<T>* hits_;   // the candidates whose draws passed
  SketchCandidates<P, T> candidates_;
  T* q_;  // [width, kSketchRows], scaled
  std::int64_t* hit_scores_;
  Index all_see_ = 0;
  Vec<T> most_[kSketchRows];  // in lanes, the largest of the logits that all rows see
};

/// Chooses the keys of some rows.
template <class T>
FOVEA_NOINLINE void sketch_select(const SketchSelectArgs<T>& args) noexcept {
  switch (args.policy) {
    case SamplingPolicy::squared_inverse_log:
      return SketchSelect<SamplingPolicy::squared_inverse_log, T>(args).run();
    case SamplingPolicy::inverse_log:
      return SketchSelect<SamplingPolicy::inverse_log, T>(args).run();
    case SamplingPolicy::raw:
      return SketchSelect<SamplingPolicy::raw, T>(args).run();
    case SamplingPolicy::top_k:
      return SketchSelect<SamplingPolicy::top_k, T>(args).run();
    case SamplingPolicy::random:
      return SketchSelect<SamplingPolicy::random, T>(args).run();
  }
}
