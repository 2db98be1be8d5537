// SPDX-License-Identifier: MIT
/// \file
/// The choice of select.inl.hpp without reading most keys. Blocks of nearby keys are bounded
/// (block_bounds.inl.hpp). A row evaluates only the blocks that may contain a key with a sufficient
/// score, and those whose part of the normaliser is not known well enough. This gives the
/// normaliser up to a small interval; if the K best keys are the same for the whole interval, they
/// are those of the exhaustive choice (SketchHits::is_certain). Otherwise more blocks are
/// evaluated. The few undecided rows use the exhaustive choice.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/sketch/key_blocks.inl.hpp"
#include "fovea/kernels/sketch/select.inl.hpp"
#endif

/// The refinement of the normaliser. Gaps are fractions of the sum of a row's exponentials, per
/// block: with the first one most rows of eight heads were decided immediately in measurements, and
/// the last one is below rounding.
struct RefinementSteps {
  static constexpr double kFirst = 0x1p-10;
  static constexpr double kStep = 0x1p-3;
  static constexpr double kLast = 0x1p-26;
};

/// One call under one policy that has blocks.
template <SamplingPolicy P, class T>
class SketchBlockSelect {
 public:
  explicit SketchBlockSelect(const SketchSelectArgs<T>& args)
      : args_(args),
        all_(args),
        blocks_(args, reinterpret_cast<T*>(static_cast<unsigned char*>(args.scratch) +
                                           sketch_select_scratch<T>(args.key_end, args.width))) {}

  void run() {
    for (Index first = 0; first < args_.rows; first += kSketchRows) {
      const Index count = smaller(kSketchRows, args_.rows - first);
      const bool has_bounds = bound(first, count);
      std::uint32_t undecided = 0;
      for (Index r = 0; r < count; ++r) {
        if (has_bounds && choose(first + r, r)) continue;
        undecided |= std::uint32_t{1} << r;
      }
      all_.run(first, count, undecided);
    }
  }

 private:
  /// Bounds the blocks visible to a few rows. Returns whether there are enough of them.
  bool bound(Index first, Index count) {
    const Index seen = all_.visible(first);
    const Index covered = blocks_.cover(seen);
    if (seen <= args_.chosen || covered < larger(args_.blocks->least_keys, 1)) return false;
    all_.scale_queries(first, count);
    blocks_.bound(all_.q(), all_.visible(first + count - 1), all_.scores(0), all_.room());
    return true;
  }

  /// Chooses the keys of a row for all heads. Returns false if they are uncertain, or if it would
  /// have to read nearly all keys.
  bool choose(Index row, Index r) {
    seen_ = all_.visible(row);
    if (!blocks_.take_row(all_.q(), r, all_.scores(r), seen_)) return false;
    gap_ = RefinementSteps::kFirst;
    collected_ = 0;
    wanted_ = all_.first_guess();
    if (!close_gaps() || !collect(wanted_ * kMore)) return false;
    Index h = 0;
    while (h < args_.heads) {
      if (!find_candidates()) {
        if (!collect((collected_ > wanted_ ? collected_ : wanted_) * kMore)) return false;
        continue;
      }
      // These candidates serve the heads in turn, until one is undecided.
      Outcome outcome = Outcome::decided;
      while (h < args_.heads && outcome == Outcome::decided) {
        outcome = choose_for_head(h, row);
        if (outcome == Outcome::decided) ++h;
      }
      if (outcome == Outcome::too_few) wanted_ *= 2;
      if (outcome == Outcome::unsure && !close_more_gaps()) return false;
    }
    if (args_.is_number != nullptr) args_.is_number[row] = true;
    if (args_.looked_at != nullptr) args_.looked_at[row] = blocks_.looked_at();
    return true;
  }

  enum class Outcome { decided, too_few, unsure };

  Outcome choose_for_head(Index h, Index row) {
    if (P == SamplingPolicy::top_k && h > 0) {
      all_.repeat_head(h, row);
      return Outcome::decided;
    }
    if (!all_.hits().find(h, row)) return Outcome::too_few;
    if (!all_.hits().is_certain(interval_)) return Outcome::unsure;
    all_.hits().write_sorted(all_.index_row(h, row));
    return Outcome::decided;
  }

  /// Whether evaluating that many blocks is faster: reading three quarters of the keys takes about
  /// as long as the exhaustive choice.
  bool pays(Index blocks) const {
    return blocks_.looked_at() + blocks * kBlockKeys <= seen_ / 4 * 3;
  }

  /// Evaluates the blocks whose part of the sum is not known well enough. Returns false if that
  /// does not pay.
  bool close_gaps() {
    if constexpr (!kNeedsSum) return true;
    const auto gap = static_cast<T>(gap_ * blocks_.least());
    if (gap_ == RefinementSteps::kFirst && !pays(blocks_.count_gaps(gap))) return false;
    blocks_.close_gaps(gap);
    return true;
  }
  /// Evaluates more of them. Returns false if none are left.
  bool close_more_gaps() {
    gap_ *= RefinementSteps::kStep;
    return kNeedsSum && gap_ >= RefinementSteps::kLast && close_gaps();
  }

  /// Keeps enough keys that about `wanted` are expected to be hits.
  bool collect(T wanted) {
    const T bound = guess(wanted);
    if (!(bound > -MathConstants<T>::kInfinity)) return false;
    if (collected_ == 0 && !pays(blocks_.find_above(bound))) return false;
    blocks_.keep_above(bound);
    collected_ = wanted;
    // Other keys have no larger logits.
    bound_ = bound + rounded(2 * blocks_.room());
    return true;
  }

  /// A logit such that about `wanted` keys above it are expected to be hits; -infinity if none.
  T guess(T wanted) {
    SketchCandidates<P, T>& candidates = all_.hits().candidates();
    const BlockRow<T>& row = blocks_.row();
    const T keys = static_cast<T>(kBlockKeys);
    const T log_sum =
        kHasSum ? blocks_.top() + static_cast<T>(__builtin_log2(blocks_.least())) : T(0);
    const SketchRow<T> sketch{nullptr, 0, blocks_.top(), kHasSum ? log_sum - blocks_.top() : T(0),
                              true};
    // First as if all keys of a block had the mean logit.
    T* const losses = candidates.losses();
    for (Index b = 0; b < blocks_.count(); b += kLanes<T>) {
      store(losses + b, set1(log_sum) - load(row.mean + b));
    }
    const T theta = candidates.guess(sketch, blocks_.count(), wanted / keys);
    if (!(theta < MathConstants<T>::kInfinity)) return log_sum - theta;
    // Blocks that may have such keys are modelled by mean and deviation: half of the keys and two
    // quarters have three logits. That misses fewer keys, so theta is smaller.
    const Index count = blocks_.find_above(log_sum - theta);
    Index n = 0;
    for (Index i = 0; i < count; ++i) {
      const Index b = blocks_.places()[i];
      const T loss = log_sum - row.mean[b];
      const T away = rounded(row.deviation[b] * kQuarterAway);
      losses[n] = losses[n + 1] = loss;
      losses[n + 2] = loss - away;
      losses[n + 3] = loss + away;
      n += 4;
    }
    for (Index i = 0; i < kPadding; ++i) losses[n + i] = MathConstants<T>::kInfinity;
    const T better = candidates.guess(sketch, n, wanted * 4 / keys);
    return log_sum - (better < theta ? better : theta);
  }

  /// Finds the candidates among the kept keys, for the row's smallest possible normaliser, and the
  /// normaliser's interval. Returns false if that may leave too few of them.
  bool find_candidates() {
    const T most = largest_of_vectors(blocks_.kept_logits(), blocks_.kept());
    // So it is the largest logit of all keys, as in the exhaustive choice.
    if (!(most > bound_)) return false;
    T normaliser = 0;
    if constexpr (kHasSum) {
      const double room = kLogSumRoom<T> + static_cast<double>(blocks_.room());
      const double above = static_cast<double>(blocks_.top()) - static_cast<double>(most);
      const double low = __builtin_log2(blocks_.least()) + above - room;
      const double high = __builtin_log2(blocks_.most()) + above + room;
      // Beyond it, the margin would be too small.
      if (above < -kMostAbove) return false;
      // The exhaustive sum contains a 1, so its normaliser is not negative.
      normaliser = low > 0 ? static_cast<T>(low) : T(0);
      interval_ = high - static_cast<double>(normaliser);
      if (!(interval_ >= 0)) return false;
    }
    const SketchRow<T> sketch{blocks_.kept_logits(), blocks_.kept(), most, normaliser, true};
    constexpr T rounded = 1 - (sizeof(T) == 4 ? T(0x1p-20) : T(0x1p-48));
    const T cap = kHasSum ? (normaliser + (most - bound_)) * rounded : -bound_;
    return all_.hits().candidates().find_below(sketch, wanted_, cap, blocks_.kept_keys());
  }

  /// Whether the normaliser is needed, and the choice depends on it.
  static constexpr bool kHasSum = P != SamplingPolicy::top_k;
  static constexpr bool kNeedsSum = kHasSum && P != SamplingPolicy::raw;
  /// Collecting again costs more than collecting a few more.
  static constexpr T kMore = T(1.25);
  /// The distance in deviations of a quarter of the keys from the mean, on either side: more than
  /// the square root of 2, which would give the same deviation; measured best.
  static constexpr T kQuarterAway = T(1.5);

  const SketchSelectArgs<T>& args_;
  SketchSelect<P, T> all_;
  KeyBlocks<T> blocks_;
  // Of one row:
  Index seen_ = 0;
  double gap_ = 0;       // the gap of the sums of blocks, relative to the whole
  T wanted_ = 0;         // hits
  T collected_ = 0;      // expected hits among the kept keys
  T bound_ = 0;          // no other key has a larger logit
  double interval_ = 0;  // the normaliser's possible excess
};

/// Chooses the keys of some rows under one policy.
template <SamplingPolicy P, class T>
FOVEA_INLINE void select_under(const SketchSelectArgs<T>& args) {
  if constexpr (P != SamplingPolicy::random) {
    // Given draws may be any numbers.
    if (args.blocks != nullptr && args.draws == nullptr) {
      return SketchBlockSelect<P, T>(args).run();
    }
  }
  SketchSelect<P, T>(args).run();
}

/// Chooses the keys of some rows.
template <class T>
FOVEA_NOINLINE void sketch_select(const SketchSelectArgs<T>& args) noexcept {
  switch (args.policy) {
    case SamplingPolicy::squared_inverse_log:
      return select_under<SamplingPolicy::squared_inverse_log>(args);
    case SamplingPolicy::inverse_log:
      return select_under<SamplingPolicy::inverse_log>(args);
    case SamplingPolicy::raw:
      return select_under<SamplingPolicy::raw>(args);
    case SamplingPolicy::top_k:
      return select_under<SamplingPolicy::top_k>(args);
    case SamplingPolicy::random:
      return select_under<SamplingPolicy::random>(args);
  }
}
