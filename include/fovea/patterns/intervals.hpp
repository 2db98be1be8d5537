// SPDX-License-Identifier: MIT
/// \file
/// Interval patterns: a position sees a fixed number of intervals of keys. IntervalPlan makes the
/// plan of such a pattern from the properties that it declares.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// The keys phase + step * t. \invariant 0 <= phase < step
struct StridedRange {
  Index phase = 0;  ///< the smallest key that is not negative
  Index step = 1;   ///< the distance between neighbouring keys; 1 for all keys

  /// The number of its keys in [0, keys).
  constexpr Index size(Index keys) const {
    if (step == 1) return keys;
    return phase < keys ? (keys - 1 - phase) / step + 1 : 0;
  }
  /// The points t whose keys are in an interval of keys; unbounded ends stay unbounded.
  constexpr Range points(const Range& keys) const {
    if (step == 1) return keys;
    const Index end = keys.end == kEverywhere.end ? keys.end : ceil_div(keys.end - phase, step);
    return {ceil_div(keys.begin - phase, step), end};
  }
  /// Whether both contain the same keys.
  friend constexpr bool operator==(const StridedRange&, const StridedRange&) = default;
};

/// A pattern with one interval: `keys_of(i)` is the interval that position i sees, which may extend
/// beyond the sequence.
template <class P>
concept SingleIntervalPattern = requires(const P pattern, Index i) {
  { pattern.allows(i, i) } -> std::same_as<bool>;
  { pattern.keys_of(i) } -> std::same_as<Range>;
};

/// A pattern with `interval_count()` intervals: `keys_of(i, intervals)` writes those that position
/// i sees. They are disjoint and may extend beyond the sequence. The end of kEverywhere means all
/// later keys.
template <class P>
concept MultiIntervalPattern = requires(const P pattern, Index i, std::span<Range> intervals) {
  { pattern.allows(i, i) } -> std::same_as<bool>;
  { pattern.interval_count() } -> std::convertible_to<Index>;
  pattern.keys_of(i, intervals);
};

/// A pattern that IntervalPlan can plan. Its functions do not throw. Besides the required ones it
/// may have any of the following, with the default in brackets.
/// - `up_to(keys)` (the pattern itself): the same pattern for a sequence of this many keys. It may
///   drop intervals that contain none of them; the others keep their order. A plan's cost depends
///   on their number.
/// - `row_step()` (1): with a step l > 1, position i sees only keys j with (i - j) mod l = 0. The
///   intervals then count the keys of that residue, and rows of one residue are computed together.
/// - `strided_range(interval)` (all keys): the keys that an interval counts, if row_step() is 1.
/// - `key_step()` (row_step()): each key block of the backward pass has one residue modulo this.
///   The steps of all intervals are multiples of it.
/// - `interval_capacity()` (interval_count()): the number of elements of `intervals` that
///   keys_of may write to.
/// - `most_keys()` (no bound): the most keys that a row sees, for a pattern with one interval.
/// - `receptive_field()` (no bound): how far before and after itself a position sees keys.
/// - `key_columns()` (all keys): the only keys that positions see.
/// - `same_until(i)` (i + 1): the positions [i, same_until(i)) with i's residue have the same
///   intervals; kUnboundedKeys if all after i do.
/// - `linear_until(i)` (none): from each position in [i, linear_until(i)) with i's residue to the
///   next, each bound of an interval moves by a fixed number of keys. Not allowed with
///   causal_cut().
/// - `repeats_until(i)` (none): from i to here, positions see the same in groups as large as [i,
///   same_until(i)), and from each group to the next, each bound of an interval moves by a fixed
///   number of keys. Used to count pairs. Not allowed with causal_cut().
/// - `causal_cut()` (false): whether the intervals still need the causal cut, to keys up to i. Lets
///   more positions have the same intervals.
/// - `next_cut(i)` (kUnboundedKeys, none): the first position after i where a row block must begin.
/// - `row_block()` (none): rows that see nearly the same keys begin at multiples of this.
/// - `seen_from(keys)` (everywhere): a range that contains every position that sees one of the
///   keys.
/// - `meets(rows, keys)` (rows meet seen_from(keys)): false only if no position of `rows` sees one
///   of `keys`.
template <class P>
concept IntervalPattern = SingleIntervalPattern<P> || MultiIntervalPattern<P>;

/// An interval pattern that has `linear_until`.
template <class P>
concept LinearIntervals = IntervalPattern<P> && requires(const P pattern, Index i) {
  { pattern.linear_until(i) } -> std::same_as<Index>;
};

/// An interval pattern with everything that IntervalPattern lists, with defaults for what the
/// pattern lacks.
template <class P>
class Intervals {
 public:
  /// Holds a copy of the pattern.
  explicit Intervals(const P& pattern) : pattern_(pattern) {}

  /// The pattern itself.
  const P& pattern() const { return pattern_; }
  /// The same pattern for a sequence of this many keys.
  P up_to(Index keys) const {
    if constexpr (requires { pattern_.up_to(keys); }) {
      return pattern_.up_to(keys);
    } else {
      return pattern_;
    }
  }
  /// Whether the query at position i sees key j.
  bool allows(Index i, Index j) const { return pattern_.allows(i, j); }

  /// The number of intervals.
  Index count() const {
    if constexpr (SingleIntervalPattern<P>) {
      return 1;
    } else {
      return pattern_.interval_count();
    }
  }

  /// The number of elements of `intervals` that keys_of may write to.
  Index interval_capacity() const {
    if constexpr (requires { pattern_.interval_capacity(); }) {
      return pattern_.interval_capacity();
    } else {
      return count();
    }
  }

  /// Writes the intervals that position i sees, without the causal cut if causal_cut().
  void keys_of(Index i, std::span<Range> intervals) const {
    if constexpr (SingleIntervalPattern<P>) {
      intervals[0] = pattern_.keys_of(i);
    } else {
      pattern_.keys_of(i, intervals);
    }
  }

  /// Whether the intervals still need the causal cut, to keys up to the query.
  bool causal_cut() const {
    if constexpr (requires { pattern_.causal_cut(); }) {
      return pattern_.causal_cut();
    } else {
      return false;
    }
  }

  /// Writes the intervals as keys_of does, with the causal cut.
  void cut_keys_of(Index i, std::span<Range> intervals) const {
    keys_of(i, intervals);
    for (Index s = 0; causal_cut() && s < count(); ++s) {
      Range& interval = intervals[static_cast<std::size_t>(s)];
      interval.end = (std::min)(interval.end,
                                strided_range(s, floor_mod(i, row_step())).points({i, i + 1}).end);
    }
  }
  /// Positions [i, cut_same_until(i)) with i's residue have the same intervals after the cut.
  Index cut_same_until(Index i) const { return causal_cut() ? i + 1 : same_until(i); }

  /// Position i sees only keys j with (i - j) mod row_step() = 0.
  Index row_step() const {
    if constexpr (requires { pattern_.row_step(); }) {
      return pattern_.row_step();
    } else {
      return 1;
    }
  }

  /// Each key block of the backward pass has one residue modulo this.
  Index key_step() const {
    if constexpr (requires { pattern_.key_step(); }) {
      return pattern_.key_step();
    } else {
      return row_step();
    }
  }

  /// Whether an interval has keys with the same residue modulo key_step() as `key`.
  bool has_residue_of(Index key) const {
    if (key_step() == row_step()) return true;
    for (Index s = 0; s < count(); ++s) {
      if (floor_mod(key - strided_range(s, 0).phase, key_step()) == 0) return true;
    }
    return false;
  }

  /// The keys that an interval counts, for positions of this residue modulo row_step().
  StridedRange strided_range(Index interval, Index residue) const {
    if (row_step() > 1) return {residue, row_step()};
    if constexpr (requires { pattern_.strided_range(interval); }) {
      return pattern_.strided_range(interval);
    } else {
      return {};
    }
  }

  /// The most keys that a row sees; kUnboundedKeys if there is no bound.
  Index most_keys() const {
    if constexpr (SingleIntervalPattern<P> && requires { pattern_.most_keys(); }) {
      return pattern_.most_keys();
    } else {
      return kUnboundedKeys;
    }
  }

  /// Positions [i, same_until(i)) with i's residue have the same intervals before the cut.
  Index same_until(Index i) const {
    if constexpr (requires { pattern_.same_until(i); }) {
      return pattern_.same_until(i);
    } else {
      return i + 1;
    }
  }

  /// The first position after i where a block of rows must begin.
  Index next_cut(Index i) const {
    if constexpr (requires { pattern_.next_cut(i); }) {
      return pattern_.next_cut(i);
    } else {
      return kUnboundedKeys;
    }
  }

  /// Rows that see nearly the same keys begin at multiples of this; 0 if there is none.
  Index row_block() const {
    if constexpr (requires { pattern_.row_block(); }) {
      return pattern_.row_block();
    } else {
      return 0;
    }
  }

  /// A range that contains every position that sees one of the keys.
  Range seen_from(const Range& keys) const {
    if constexpr (requires { pattern_.seen_from(keys); }) {
      return pattern_.seen_from(keys);
    } else {
      return kEverywhere;
    }
  }

  /// If this is false, no position of `rows` sees a key of `keys`.
  bool meets(const Range& rows, const Range& keys) const {
    if constexpr (requires { pattern_.meets(rows, keys); }) {
      return pattern_.meets(rows, keys);
    } else {
      return rows.meets(seen_from(keys));
    }
  }

 private:
  P pattern_;
};

FOVEA_NAMESPACE_END
