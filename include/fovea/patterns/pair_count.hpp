// SPDX-License-Identifier: MIT
/// \file
/// How interval plans count their visible pairs: groups of rows whose intervals move alike are
/// counted in closed form.
#pragma once

#include <algorithm>
#include <array>
#include <limits>

#include <vector>

#include "fovea/patterns/intervals.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// begin + step * t, saturated to the range of Index.
inline Index moved(Index begin, Index step, Index t) {
  using Limits = std::numeric_limits<Index>;
  Index moved = 0;
  if (!__builtin_mul_overflow(step, t, &moved) && !__builtin_add_overflow(begin, moved, &moved)) {
    return moved;
  }
  return step < 0 ? (Limits::min)() : (Limits::max)();
}

/// Adds to `pairs`, for each t in [0, count), how many integers of `bounds` the interval `first`
/// contains after its ends have moved t times by those of `motion`. The sum is the largest Index if
/// there are more. Cost: O(1). \pre the ends of `first` and `bounds` are at most 2^62 in magnitude
inline Index add_lengths(Index pairs, const Range& first, const Range& motion, const Range& bounds,
                         Index count) {
  const auto length = [&](Index t) {
    const Range seen = Range{moved(first.begin, motion.begin, t), moved(first.end, motion.end, t)};
    const Range inside = seen.within(bounds);
    return inside.is_empty() ? 0 : inside.end - inside.begin;
  };
  // The length is linear in t between the points where one of these passes the other.
  std::array<Index, 7> turns = {0, count};  // ascending
  std::size_t size = 2;
  const auto turn = [&](Index x, Index y, Index step) {
    if (step == 0) return;
    const Index difference = x - y;
    const Index after = step > 0 ? floor_div(-difference, step) : floor_div(difference, -step);
    const Index at = std::clamp(after + 1, Index{0}, count);
    std::size_t n = size++;
    for (; turns[n - 1] > at; --n) turns[n] = turns[n - 1];
    turns[n] = at;
  };
  turn(first.begin, bounds.begin, motion.begin);
  turn(first.begin, bounds.end, motion.begin);
  turn(first.end, bounds.begin, motion.end);
  turn(first.end, bounds.end, motion.end);
  turn(first.end, first.begin, motion.end - motion.begin);
  for (std::size_t n = 1; n < size; ++n) {
    const Index begin = turns[n - 1];
    Index end = turns[n];
    if ((end - begin) % 2 != 0) pairs = add_pairs(pairs, 1, length(--end));
    if (begin == end) continue;
    const Index half = (end - begin) / 2;
    pairs = add_pairs(add_pairs(pairs, half, length(begin)), half, length(end - 1));
  }
  return pairs;
}

}  // namespace detail

/// Counts visible pairs by groups of rows. If more than kMostRows rows are left after kGroups
/// groups, the count is extrapolated: those rows are assumed to see as many keys on average as the
/// rows in the last half of the groups. This bounds the cost for any number of rows.
class PairCount {
 public:
  static constexpr Index kGroups = Index{1} << 18;    ///< groups that are always counted exactly
  static constexpr Index kMostRows = Index{1} << 32;  ///< rows that are always counted exactly

  /// Will count the pairs of this many rows.
  explicit PairCount(Index rows) : left_(rows) {}

  /// The pairs so far, saturated to the largest Index.
  Index total() const { return total_; }
  /// Whether nothing is left to count.
  bool is_done() const { return left_ <= 0 || total_ == kMost; }

  /// Adds the pairs of the next rows.
  void add(Index rows, Index pairs) {
    total_ = add_pairs(total_, 1, pairs);
    left_ -= rows;
    ++groups_;
    if (groups_ <= kGroups / 2 || total_ == kMost) return;
    late_rows_ += rows;
    late_pairs_ += pairs;
    if (groups_ != kGroups || left_ <= kMostRows) return;
    const double rest = static_cast<double>(late_pairs_ % late_rows_) /
                        static_cast<double>(late_rows_) * static_cast<double>(left_);
    total_ = add_pairs(total_, left_, late_pairs_ / late_rows_);
    total_ = add_pairs(total_, 1, static_cast<Index>(rest));
    left_ = 0;
  }

 private:
  static constexpr Index kMost = (std::numeric_limits<Index>::max)();

  Index left_;
  Index total_ = 0;
  Index groups_ = 0;
  Index late_rows_ = 0;  // of the last half of the groups
  Index late_pairs_ = 0;
};

namespace detail {

/// Counts the pairs of an interval pattern.
template <class P>
class IntervalPairs {
 public:
  /// \param intervals the pattern's intervals for this shape; they must outlive this object
  IntervalPairs(const Intervals<P>& intervals, const SequenceShape& shape)
      : intervals_(intervals),
        shape_(shape),
        memory_(2 * static_cast<std::size_t>(
                        (std::max)(intervals.count(), intervals.interval_capacity()))),
        seen_(std::span(memory_).first(memory_.size() / 2)),
        next_(std::span(memory_).last(memory_.size() / 2)) {}
  IntervalPairs(const IntervalPairs&) = delete;
  IntervalPairs& operator=(const IntervalPairs&) = delete;

  /// The number of visible pairs.
  Index count() {
    const Index step = intervals_.row_step();
    PairCount pairs(shape_.queries);
    for (Index r = 0; r < (std::min)(step, shape_.queries) && !pairs.is_done(); ++r) {
      Index i = shape_.first_position + r;
      for (Index left = ceil_div(shape_.queries - r, step); left > 0 && !pairs.is_done();) {
        const Rows rows = alike_rows(i, left);
        pairs.add(rows.count(), pairs_of(i, rows));
        left -= rows.count();
        if (left > 0) i += rows.count() * step;
      }
    }
    return pairs.total();
  }

 private:
  /// Rows of one residue: groups of rows that see the same keys; from group to group the intervals
  /// move by a fixed number of keys.
  struct Rows {
    Index same;    // the rows of a group
    Index groups;  // number of groups
    bool move;     // whether the row after the first group would begin another one

    Index count() const { return same * groups; }
  };

  /// The rows from position i on that can be counted together. \param left the rows of its residue
  Rows alike_rows(Index i, Index left) const {
    const auto rows_until = [&](Index end) {
      if (end == kUnboundedKeys) return left;
      return end <= i ? 0 : (std::min)(left, ceil_div(end - i, intervals_.row_step()));
    };
    const Index same = (std::max)(Index{1}, rows_until(intervals_.same_until(i)));
    const auto groups_until = [&](Index end, Index of) {
      const Index behind = i + of * intervals_.row_step();
      return Rows{of, rows_until(end) / of, behind < end};
    };
    if constexpr (LinearIntervals<P>) {
      const Rows rows = groups_until(intervals_.pattern().linear_until(i), 1);
      if (rows.groups >= same) return rows;
    }
    if constexpr (requires { intervals_.pattern().repeats_until(i); }) {
      const Rows rows = groups_until(intervals_.pattern().repeats_until(i), same);
      if (rows.groups >= 1) return rows;
    }
    return {same, 1, false};
  }

  /// The pairs of these rows.
  Index pairs_of(Index i, const Rows& rows) {
    const Index step = intervals_.row_step();
    intervals_.keys_of(i, seen_);
    if (rows.move) intervals_.keys_of(i + rows.same * step, next_);
    Index pairs = 0;
    for (Index s = 0; s < intervals_.count(); ++s) {
      const StridedRange strided_range = intervals_.strided_range(s, floor_mod(i, step));
      const Range points = {0, strided_range.size(shape_.keys)};
      Range seen = seen_[static_cast<std::size_t>(s)];
      Range next = rows.move ? next_[static_cast<std::size_t>(s)] : seen;
      if (seen.end == kEverywhere.end) seen.end = next.end = points.end;  // there is no end
      if (!intervals_.causal_cut()) {
        const Range motion = {next.begin - seen.begin, next.end - seen.end};
        pairs = add_pairs(pairs, rows.same, add_lengths(0, seen, motion, points, rows.groups));
        continue;
      }
      // Counted per key: each key is seen by the rows that do not come before it.
      const Range keys = seen.within(points);
      if (keys.is_empty()) continue;
      const Index first_row =
          ceil_div(strided_range.phase + strided_range.step * keys.begin - i, step);
      pairs = add_lengths(pairs, {first_row, rows.same}, {strided_range.step / step, 0},
                          {0, rows.same}, keys.end - keys.begin);
    }
    return pairs;
  }

  const Intervals<P>& intervals_;
  const SequenceShape shape_;
  std::vector<Range> memory_;
  std::span<Range> seen_;  // the intervals of a row
  std::span<Range> next_;  // the intervals of the first row of the next group
};

}  // namespace detail

FOVEA_NAMESPACE_END
