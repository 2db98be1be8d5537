// SPDX-License-Identifier: MIT
/// \file
/// The keys of a row that may be among the K best (Smart Bird, eqs. 2 and 3), found without draws.
///
/// Since s < p, a score theta that K keys reach rules out every key with p <= theta, and for each
/// other key every draw up to theta / p. Such a theta is guessed so that, in expectation under the
/// policy, the wanted number of keys scores above it.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/sketch/sampling.inl.hpp"
#include "fovea/kernels/sketch/scores.inl.hpp"
#include "fovea/simd/philox.inl.hpp"
#endif

/// The rounding margin of the bounds with which draws are compared.
template <class T>
inline constexpr T kDrawRoom = sizeof(T) == 4 ? T(0x1p-16) : T(0x1p-44);

/// The denominator of draws.
template <class T>
inline constexpr T kDraws = T(std::int64_t{1} << kDrawBits<T>);

/// The vectors of keys that draw together. They read at most two vectors beyond the last candidate,
/// which is allocated.
inline constexpr int kDrawVectors = 2;

/// The maximum number of keys sampled to guess a threshold.
inline constexpr Index kSketchSample = 512;

/// The candidates of successive rows, under one policy.
template <SamplingPolicy P, class T>
class SketchCandidates {
 public:
  /// \param memory 3 * room elements
  SketchCandidates(T* memory, Index room)
      : losses_(memory), least_(losses_ + room), keys_(reinterpret_cast<Int<T>*>(least_ + room)) {}

  Index count() const { return count_; }
  /// The losses of the candidates, padded with arbitrary numbers to a whole vector.
  const T* losses() const { return losses_; }
  /// The numerators that their draws must pass; beyond the last candidate, no draw can pass.
  const T* least() const { return least_; }
  const Int<T>* keys() const { return keys_; }
  /// Buffer for the losses used by `guess`.
  T* losses() { return losses_; }
  /// Keys beyond this loss are not candidates.
  T threshold() const { return theta_; }

  /// A score, in the order of ordered_bits. If K keys score at least this, no key was ruled out
  /// that scores as much as they do. The smallest integer if no key was ruled out.
  std::int64_t bound() const { return bound_; }

  /// Finds the keys that may score above a threshold, and the draw that each of them needs.
  void find(const SketchRow<T>& row, T wanted) {
    row_ = row;
    wanted_ = wanted;
    if constexpr (P == SamplingPolicy::random) {
      take_all_alike();
    } else {
      // Every key whose loss is below this one is among the candidates.
      T below = MathConstants<T>::kInfinity;
      if (row_.keys > kSketchSample) {
        // The sample contains few of them, so half more are taken for safety.
        const Index vectors = row_.keys / kLanes<T>;
        const Index sampled = sample((vectors * kLanes<T> + kSketchSample - 1) / kSketchSample);
        const T share = static_cast<T>(sampled) / static_cast<T>(row_.keys);
        below = threshold(sampled, rounded(wanted_ * T(1.5) * share) + 1,
                          loss_beyond<P>(largest(sampled)));
      }
      theta_ = MathConstants<T>::kInfinity;
      if (below < MathConstants<T>::kInfinity) {
        collect_below(below);
        theta_ = threshold(count_, wanted_, below);
      }
      if (!(theta_ < MathConstants<T>::kInfinity)) {
        collect_all();
        theta_ = threshold(count_, wanted_, loss_beyond<P>(largest(count_)));
      }
      if (theta_ < MathConstants<T>::kInfinity) keep_below(theta_);
      set_least();
    }
  }

  /// A loss such that about `wanted` of the first n numbers in losses() are expected to score above
  /// its p, and hardly fewer; infinity if none.
  T guess(const SketchRow<T>& row, Index n, T wanted) {
    row_ = row;
    return threshold(n, wanted, loss_beyond<P>(largest(n)), kNearlyEnough);
  }

  /// As `find`, for a row without those keys whose losses are `cap` or more. Returns false if that
  /// may leave too few candidates.
  /// \param names the row's key numbers
  bool find_below(const SketchRow<T>& row, T wanted, T cap, const Int<T>* names) {
    row_ = row;
    wanted_ = wanted;
    collect_below(cap, names);
    theta_ = threshold(count_, wanted_, cap);
    if (!(theta_ < MathConstants<T>::kInfinity)) return false;
    keep_below(theta_);
    set_least();
    return true;
  }

 private:
  FOVEA_INLINE Vec<T> loss(Vec<T> score) const {
    if constexpr (P == SamplingPolicy::top_k) return zero<T>() - score;
    return row_.loss(score);
  }

  /// Writes the losses of every step-th vector to losses_, and returns their number.
  FOVEA_NOINLINE Index sample(Index step) const {
    Index count = 0;
    for (Index j = 0; j + kLanes<T> <= row_.keys; j += step * kLanes<T>) {
      store(losses_ + count, loss(load(row_.scores + j)));
      count += kLanes<T>;
    }
    return count;
  }

  /// The largest finite one of the first n losses; -infinity if none.
  FOVEA_NOINLINE T largest(Index n) const {
    constexpr T infinity = MathConstants<T>::kInfinity;
    Vec<T> most = set1(-infinity);
    for (Index j = 0; j < n; j += kLanes<T>) {
      const Vec<T> x = load(losses_ + j);
      most = maximum(most, select(x < set1(infinity), x, most));
    }
    return largest_lane(most).raw[0];
  }

  /// A loss, at most `high`, such that about as many as wanted of the first n keys in losses_ are
  /// expected to score above its p; infinity if none.
  FOVEA_NOINLINE T threshold(Index n, T wanted, T high, T enough_times = kEnough) const {
    constexpr T infinity = MathConstants<T>::kInfinity;
    if (!(high > -infinity && high < infinity)) return infinity;
    const T most = expected_above<P>(losses_, n, high);
    if (!(most >= wanted)) return infinity;
    T low = P == SamplingPolicy::top_k ? -row_.most : row_.normaliser;
    // Expectations grow like a power of the distance. So steps extrapolate quadratically, then
    // linearly, and otherwise bisect.
    constexpr int steps = 24;
    T at_low = 0;
    T at_high = most;
    for (int step = 0; step < steps && at_high > wanted * enough_times; ++step) {
      const T share = (rounded(wanted * kAim) - at_low) / (at_high - at_low);
      const T part = step >= 6 || !(share > 0) ? T(0.5) : at_low > 0 ? share : root(share);
      const T middle = low + rounded((high - low) * part);
      const T expected = expected_above<P>(losses_, n, middle);
      const bool enough = expected >= wanted;
      (enough ? high : low) = middle;
      (enough ? at_high : at_low) = expected;
    }
    return high;
  }

  /// Collects the keys whose losses are below theta.
  /// \param names their numbers; null: their places
  FOVEA_NOINLINE void collect_below(T theta, const Int<T>* names = nullptr) {
    Index count = 0;
    IntVec<T> key = lane_index<T>();
    for (Index j = 0; j < row_.keys; j += kLanes<T>) {
      const Vec<T> x = loss(load(row_.scores + j));
      // No branch for vectors without keys: about every second one has some.
      const std::uint32_t below = mask_bits(x < set1(theta));
      store_lanes(losses_ + count, x, below);
      store_lanes_int<T>(keys_ + count, names == nullptr ? key : load_int<T>(names + j), below);
      count += bit_count(below);
      key = key + set1_int<T>(kLanes<T>);
    }
    end_candidates(count);
  }

  void collect_all() {
    IntVec<T> key = lane_index<T>();
    for (Index j = 0; j < row_.keys; j += kLanes<T>) {
      store(losses_ + j, loss(load(row_.scores + j)));
      store_int<T>(keys_ + j, key);
      key = key + set1_int<T>(kLanes<T>);
    }
    end_candidates(row_.keys);
  }

  /// Keeps the candidates whose losses are below theta.
  FOVEA_NOINLINE void keep_below(T theta) {
    Index count = 0;
    for (Index n = 0; n < count_; n += kLanes<T>) {
      const Vec<T> x = load(losses_ + n);
      const IntVec<T> key = load_int<T>(keys_ + n);
      const std::uint32_t below = mask_bits(x < set1(theta));
      store_lanes(losses_ + count, x, below);
      store_lanes_int<T>(keys_ + count, key, below);
      count += bit_count(below);
    }
    end_candidates(count);
  }

  /// Ensures that keys read beyond the last candidate are not counted.
  void end_candidates(Index count) {
    store(losses_ + count, set1(MathConstants<T>::kInfinity));
    count_ = count;
  }

  /// Sets the numerators that draws must pass; beyond the last candidate, no draw can pass.
  FOVEA_NOINLINE void set_least() {
    const bool all = !(theta_ < MathConstants<T>::kInfinity);
    const Vec<T> factor = set1(kDraws<T> * (1 - kDrawRoom<T>));
    for (Index n = 0; n < count_; n += kLanes<T>) {
      store(least_ + n, all || P == SamplingPolicy::top_k
                            ? set1(T(-1))
                            : least_draw<P>(load(losses_ + n), theta_) * factor);
    }
    end_least();
    set_bound(all);
  }
  /// Places beyond the last candidate also hold keys, so that valgrind sees failing draws instead
  /// of uninitialised numbers.
  void end_least() {
    FOVEA_UNROLL
    for (int v = 0; v < kDrawVectors; ++v) {
      store(least_ + count_ + v * kLanes<T>, set1(MathConstants<T>::kInfinity));
      store_int<T>(keys_ + count_ + v * kLanes<T>, set1_int<T>(0));
    }
  }

  /// Sets the score that keys must pass so that no key with such a score is missed.
  void set_bound(bool all) {
    constexpr double room = 1 + 0x1p-40;
    const Vec<double> loss = set1(static_cast<double>(theta_));
    const Vec<double> bound = sampling_score<P>(set1(1.0), loss);
    bound_ =
        all ? (std::numeric_limits<std::int64_t>::min)()
            : first_lane(ordered_bits(P == SamplingPolicy::top_k ? bound : bound * set1(room))) + 1;
  }
  static FOVEA_INLINE std::int64_t first_lane(IntVec<double> x) { return x.raw[0]; }

  /// Takes all keys: under the policy `random` every key is a candidate and needs the same draw.
  void take_all_alike() {
    const T share = 1 - wanted_ / static_cast<T>(row_.keys);
    IntVec<T> key = lane_index<T>();
    for (Index j = 0; j < row_.keys; j += kLanes<T>) {
      store_int<T>(keys_ + j, key);
      store(losses_ + j, zero<T>());
      store(least_ + j, set1(share * kDraws<T>));
      key = key + set1_int<T>(kLanes<T>);
    }
    end_candidates(row_.keys);
    end_least();
    // A draw above the bound passes the rounded least one.
    const double bound = static_cast<double>(share) * (1 + 0x1p-20);
    bound_ = share > 0 ? first_lane(ordered_bits(set1(bound)))
                       : (std::numeric_limits<std::int64_t>::min)();
  }

  static FOVEA_INLINE T root(T x) { return static_cast<T>(__builtin_sqrt(static_cast<double>(x))); }

  /// A threshold is good enough if this many times the wanted keys are expected above it; kAim
  /// times as many are aimed at.
  static constexpr T kEnough = T(1.125);
  static constexpr T kAim = T(1.06);
  static constexpr T kNearlyEnough = T(1.5);

  T* losses_;
  T* least_;
  Int<T>* keys_;
  SketchRow<T> row_{};
  T wanted_ = 0;
  T theta_ = 0;
  std::int64_t bound_ = 0;
  Index count_ = 0;
};
