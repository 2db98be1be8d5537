// SPDX-License-Identifier: MIT
/// \file
/// The keys chosen by one head of a row among the row's candidates (Smart Bird, eq. 3).

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/sketch/candidates.inl.hpp"
#include "fovea/simd/wide.inl.hpp"
#endif

/// The hits of successive heads: candidates whose draws may suffice.
template <SamplingPolicy P, class T>
class SketchHits {
 public:
  /// \param memory 6 * room elements
  /// \param scores room elements
  SketchHits(const SketchSelectArgs<T>& args, T* memory, std::int64_t* scores, Index room)
      : args_(args),
        draws_(memory),
        losses_(draws_ + room),
        hits_(reinterpret_cast<Int<T>*>(losses_ + room)),
        candidates_(reinterpret_cast<T*>(hits_ + room), room),
        scores_(scores) {}

  /// The candidates of the row.
  SketchCandidates<P, T>& candidates() { return candidates_; }

  /// Finds the K best of one head. Returns whether enough keys scored above the candidates' bound;
  /// only then are the K best known.
  bool find(Index h, Index row) {
    count_ = P == SamplingPolicy::top_k ? take_candidates()
             : args_.draws == nullptr   ? draw(h, row)
                                        : read_draws(h, row);
    if (count_ < args_.chosen) return false;
    const std::int64_t high = score();
    constexpr std::int64_t least = (std::numeric_limits<std::int64_t>::min)();
    if (candidates_.bound() != least &&
        count_at_least(scores_, count_, candidates_.bound()) < args_.chosen)
      return false;
    largest_ = largest_numbers(scores_, count_, args_.chosen,
                               larger(candidates_.bound(), least + 1), high);
    return true;
  }

  /// Writes the K best, if the candidates ascend, without unpredictable branches.
  FOVEA_NOINLINE void write(Index* to) {
    collect();
    for (Index n = 0; n < args_.chosen; ++n) to[n * args_.indices_column] = hits_[n];
  }

  /// Writes the K best in ascending order, if the candidates are in any order.
  FOVEA_NOINLINE void write_sorted(Index* to) {
    collect();
    constexpr int w = kLanes<T>;
    // Its place is the number of smaller ones; padding is never smaller.
    store_int<T>(hits_ + args_.chosen, set1_int<T>((std::numeric_limits<Int<T>>::max)()));
    for (Index n = 0; n < args_.chosen; ++n) {
      const IntVec<T> key = set1_int<T>(hits_[n]);
      Index place = 0;
      for (Index m = 0; m < args_.chosen; m += w) {
        place += bit_count(mask_bits(load_int<T>(hits_ + m) < key));
      }
      to[place * args_.indices_column] = hits_[n];
    }
  }

  /// Whether the K best equal those of the exhaustive choice, if its normaliser is the candidates'
  /// plus a number x in [0, `interval`].
  ///
  /// A key's loss is l + x, with l its loss here. So loss / sqrt(u), and loss / u, are linear in x:
  /// if one key ranks below another at both ends of the interval, it does so in between. This also
  /// holds for keys that are not hits. At x = 0 they score no more than a key of loss theta with
  /// draw 1, and no line has a smaller slope than such a key's. Under `raw`, x changes only a
  /// common factor, and top_k has no normaliser.
  ///
  /// Both choices subtract a key's logit from the same largest one, and round when adding the
  /// normaliser. A score has twice the relative error of its loss; so two scores here and in the
  /// exhaustive choice differ by 8 roundings in total, 2^-21 for float, and a few roundings of
  /// double. Under `raw` the absolute error matters.
  FOVEA_NOINLINE bool is_certain(double interval) const {
    constexpr std::int64_t least = (std::numeric_limits<std::int64_t>::min)();
    const std::int64_t kept_from = largest_.value + (largest_.equal > 0 ? 0 : 1);
    // Among equal scores, the exhaustive choice keeps the first keys.
    if (count_at_least(scores_, count_, kept_from) != args_.chosen) return false;
    if constexpr (P == SamplingPolicy::top_k) return true;
    constexpr bool is_raw = P == SamplingPolicy::raw;
    const auto theta = static_cast<double>(candidates_.threshold());
    const double end = is_raw ? 0 : interval;
    Vec<double> kept[2], left[2];  // the smallest kept score, and the largest other
    kept[0] = kept[1] = set1(MathConstants<double>::kInfinity);
    left[0] = sampling_score<P>(set1(1.0), set1(theta));
    left[1] = sampling_score<P>(set1(1.0), set1(theta + end));
    for (Index n = 0; n < count_; n += kLanes<double>) {
      const IntVec<double> order = load_int<double>(scores_ + n);
      const IntVec<double> is_hit = order > set1_int<double>(least);
      const IntVec<double> is_kept = order > set1_int<double>(kept_from - 1);
      const Vec<double> u = load_wide(draws_ + n) * set1(1 / static_cast<double>(kDraws<T>));
      const Vec<double> loss = load_wide(losses_ + n) + set1(end);
      // Scores are not negative, so their order is their bits.
      const Vec<double> score[2] = {from_bits<double>(order), sampling_score<P>(u, loss)};
      FOVEA_UNROLL
      for (int e = 0; e < 2; ++e) {
        kept[e] = minimum(select(is_kept, score[e], kept[e]), kept[e]);
        left[e] = maximum(select(is_hit & ~is_kept, score[e], left[e]), left[e]);
      }
    }
    constexpr double rounding = sizeof(T) == 4 ? 0x1p-20 : 0x1p-48;
    const double room = 1 + rounded(rounding * (is_raw ? 1 + theta + interval : 1));
    // Powers of two below the normal range are clamped to the smallest normal number.
    constexpr double most_loss = 900;
    if (is_raw && !(theta + interval < most_loss)) return false;
    return smallest_lane(kept[0]) > largest_lane(left[0]).raw[0] * room &&
           smallest_lane(kept[1]) > largest_lane(left[1]).raw[0] * room;
  }

 private:
  static FOVEA_INLINE double smallest_lane(Vec<double> a) {
    return -largest_lane(zero<double>() - a).raw[0];
  }

  /// Moves the K best to the front of hits_, in the order of the candidates.
  FOVEA_INLINE void collect() {
    LargestNumbers largest = largest_;
    Index count = 0;
    for (Index n = 0; n < count_; ++n) {
      const std::int64_t score = scores_[n];
      const bool is_equal = score == largest.value;
      const bool is_kept = (score > largest.value) | (is_equal & (largest.equal > 0));
      hits_[count] = candidates_.keys()[hits_[n]];  // count <= n, so no hit is lost
      count += is_kept ? 1 : 0;
      largest.equal -= is_equal ? 1 : 0;
    }
  }

  /// Draws for the candidates, keeps those that pass, and returns their number.
  FOVEA_NOINLINE Index draw(Index h, Index row) {
    const auto position = static_cast<std::uint32_t>(args_.first_position + row);
    const RowDraws draws({args_.seed, args_.batch, static_cast<std::uint32_t>(h)}, position);
    Index hits = 0;
    IntVec<T> at = lane_index<T>();
    for (Index n = 0; n < candidates_.count(); n += kDrawVectors * kLanes<T>) {
      IntVec<T> keys[kDrawVectors];
      FOVEA_UNROLL
      for (int v = 0; v < kDrawVectors; ++v) {
        keys[v] = load_int<T>(candidates_.keys() + n + v * kLanes<T>);
      }
      IntVec<T> numerators[kDrawVectors];
      draws.numerators<kDrawVectors, T>(keys, numerators);
      FOVEA_UNROLL
      for (int v = 0; v < kDrawVectors; ++v) {
        const Vec<T> draw{__builtin_convertvector(numerators[v].raw, typename Vec<T>::Raw)};
        hits = add_hits(hits, at, draw, n + v * kLanes<T>);
        at = at + set1_int<T>(kLanes<T>);
      }
    }
    return hits;
  }

  /// The same with given draws.
  FOVEA_NOINLINE Index read_draws(Index h, Index row) {
    const T* const draws = args_.draws + h * args_.draws_head + row * args_.draws_row;
    Index hits = 0;
    IntVec<T> at = lane_index<T>();
    for (Index n = 0; n < candidates_.count(); n += kLanes<T>) {
      alignas(kVecBytes) T lanes[kLanes<T>] = {};
      for (Index lane = 0; lane < smaller(kLanes<T>, candidates_.count() - n); ++lane) {
        // A NaN draw counts as the smallest.
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
    store_lanes(draws_ + hits, draw, passed);
    store_lanes(losses_ + hits, load(candidates_.losses() + n), passed);
    return hits + bit_count(passed);
  }

  /// Keeps all candidates, if nothing is drawn.
  Index take_candidates() {
    IntVec<T> at = lane_index<T>();
    for (Index n = 0; n < candidates_.count(); n += kLanes<T>) {
      store_int<T>(hits_ + n, at);
      store(draws_ + n, zero<T>());
      store(losses_ + n, load(candidates_.losses() + n));
      at = at + set1_int<T>(kLanes<T>);
    }
    return candidates_.count();
  }

  /// Writes the hits' scores as integers of the same order, padded with the smallest integer, and
  /// returns one more than the largest.
  FOVEA_NOINLINE std::int64_t score() {
    constexpr Index w = kLanes<double>;
    constexpr std::int64_t least = (std::numeric_limits<std::int64_t>::min)();
    IntVec<double> high = set1_int<double>(least);
    for (Index n = 0; n < count_; n += w) {
      const Vec<double> u = load_wide(draws_ + n) * set1(1 / static_cast<double>(kDraws<T>));
      const Vec<double> loss = load_wide(losses_ + n);
      const IntVec<double> score = ordered_bits(sampling_score<P>(u, loss));
      const IntVec<double> is_hit = lane_index<double>() < set1_int<double>(count_ - n);
      const IntVec<double> order{is_hit.raw ? score.raw : set1_int<double>(least).raw};
      high.raw = order.raw > high.raw ? order.raw : high.raw;
      store_int<double>(scores_ + n, order);
    }
    alignas(kVecBytes) std::int64_t lanes[w];
    store_int<double>(lanes, high);
    for (Index lane = 1; lane < w; ++lane) lanes[0] = larger(lanes[0], lanes[lane]);
    return lanes[0] + 1;
  }

  const SketchSelectArgs<T>& args_;
  T* draws_;      // numerators of the draws that passed
  T* losses_;     // losses of the same candidates
  Int<T>* hits_;  // the candidates whose draws passed
  SketchCandidates<P, T> candidates_;
  std::int64_t* scores_;  // the hits' scores, as integers
  Index count_ = 0;
  LargestNumbers largest_{};
};
