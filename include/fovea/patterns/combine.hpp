// SPDX-License-Identifier: MIT
/// \file
/// Combinations of two patterns: union, difference and intersection. The intervals are cut for each
/// position, so that no key is counted twice.
#pragma once

#include <string>

#include "fovea/core/error.hpp"
#include "fovea/patterns/interval_plan.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The intervals from index `first` on.
inline std::span<Range> intervals_from(std::span<Range> intervals, Index first) {
  return intervals.subspan(static_cast<std::size_t>(first));
}

/// Interval s.
inline Range& interval_at(std::span<Range> intervals, Index s) {
  return intervals[static_cast<std::size_t>(s)];
}

/// Whether interval s of `by` can cut interval t of `of`: the strided range of `by` must be
/// all keys, or equal that of `of` for every position.
template <class A, class B>
bool can_cut(const Intervals<A>& by, Index s, const Intervals<B>& of, Index t) {
  const StridedRange strided_range = by.strided_range(s, 0);
  return strided_range.step == 1 ||
         (by.row_step() == of.row_step() && strided_range == of.strided_range(t, 0));
}

/// \throws std::invalid_argument if fits(s, t) is false for some interval s of a and interval t of
/// b
template <class A, class B, class Fits>
void check_strided_ranges(const char* op, const Intervals<A>& a, const Intervals<B>& b,
                          Fits&& fits) {
  for (Index s = 0; s < a.count(); ++s) {
    for (Index t = 0; t < b.count(); ++t) {
      if (fits(s, t)) continue;
      const auto name = [](const StridedRange& x) {
        return std::to_string(x.phase) + " + " + std::to_string(x.step) + " t";
      };
      refuse(op,
             "the patterns have keys at " + name(a.strided_range(s, 0)) + " and at " +
                 name(b.strided_range(t, 0)),
             "expected all keys or equal keys; EnumeratedPattern supports any pattern");
    }
  }
}

}  // namespace detail

/// The union of two disjoint patterns: a position sees what either shows.
template <IntervalPattern A, IntervalPattern B>
class DisjointUnion {
 public:
  /// \throws std::invalid_argument if the patterns group rows by different steps; use `in_passes`
  /// for those
  DisjointUnion(const A& a, const B& b) : a_(a), b_(b) {
    if (a_.row_step() != b_.row_step()) {
      refuse("unite",
             "the row steps of the patterns are " + std::to_string(a_.row_step()) + " and " +
                 std::to_string(b_.row_step()),
             "expected equal steps; in_passes supports any");
    }
  }

  /// Whether the query at position i sees key j.
  bool allows(Index i, Index j) const { return a_.allows(i, j) || b_.allows(i, j); }

  /// The same pattern for a sequence of this many keys, without unused intervals.
  DisjointUnion up_to(Index keys) const { return {a_.up_to(keys), b_.up_to(keys)}; }
  /// The number of intervals: those of a, then those of b.
  Index interval_count() const { return a_.count() + b_.count(); }
  /// The number of elements of `intervals` that keys_of may write to.
  Index interval_capacity() const {
    return (std::max)(a_.interval_capacity(), a_.count() + b_.interval_capacity());
  }
  /// The step of both patterns: position i sees only keys j with (i - j) mod step = 0.
  Index row_step() const { return a_.row_step(); }
  /// The keys that interval s counts, if row_step() is 1.
  StridedRange strided_range(Index s) const {
    return s < a_.count() ? a_.strided_range(s, 0) : b_.strided_range(s - a_.count(), 0);
  }

  /// Writes the intervals of a, then those of b. They have the causal cut unless causal_cut().
  void keys_of(Index i, std::span<Range> intervals) const {
    const std::span<Range> of_b = detail::intervals_from(intervals, a_.count());
    if (causal_cut()) {
      a_.keys_of(i, intervals);
      b_.keys_of(i, of_b);
    } else {
      a_.cut_keys_of(i, intervals);
      b_.cut_keys_of(i, of_b);
    }
  }

  /// Whether the intervals still need the causal cut: if both patterns do.
  bool causal_cut() const { return a_.causal_cut() && b_.causal_cut(); }
  /// Positions [i, same_until(i)) with i's residue have the same intervals.
  Index same_until(Index i) const {
    return causal_cut() ? (std::min)(a_.same_until(i), b_.same_until(i))
                        : (std::min)(a_.cut_same_until(i), b_.cut_same_until(i));
  }
  /// The first position after i where a block of rows must begin.
  Index next_cut(Index i) const { return (std::min)(a_.next_cut(i), b_.next_cut(i)); }
  /// Rows that see nearly the same keys begin at multiples of this; 0 if there is none.
  Index row_block() const { return (std::max)(a_.row_block(), b_.row_block()); }

  /// A range that contains every position that sees one of the keys.
  Range seen_from(const Range& keys) const {
    const Range a = a_.seen_from(keys);
    const Range b = b_.seen_from(keys);
    if (a.is_empty()) return b;
    if (b.is_empty()) return a;
    return {(std::min)(a.begin, b.begin), (std::max)(a.end, b.end)};
  }
  /// If this is false, no position of `rows` sees a key of `keys`.
  bool meets(const Range& rows, const Range& keys) const {
    return a_.meets(rows, keys) || b_.meets(rows, keys);
  }

  /// The plan for one sequence.
  IntervalPlan<DisjointUnion> plan(const SequenceShape& shape) const { return {*this, shape}; }

 private:
  Intervals<A> a_;
  Intervals<B> b_;
};

/// The difference of two patterns: what A shows and B does not. Each interval of A becomes one more
/// interval than B has.
template <IntervalPattern A, IntervalPattern B>
class Difference {
 public:
  /// \throws std::invalid_argument if an interval of B has a strided range that is neither all keys
  /// nor that of A
  Difference(const A& a, const B& b) : a_(a), b_(b) {
    detail::check_strided_ranges("subtract", a_, b_,
                                 [&](Index s, Index t) { return detail::can_cut(b_, t, a_, s); });
  }

  /// Whether the query at position i sees key j.
  bool allows(Index i, Index j) const { return a_.allows(i, j) && !b_.allows(i, j); }

  /// The same pattern for a sequence of this many keys, without unused intervals.
  Difference up_to(Index keys) const { return {a_.up_to(keys), b_.up_to(keys)}; }
  /// The number of intervals: for each one of A, its pieces.
  Index interval_count() const { return a_.count() * pieces(); }
  /// The number of elements of `intervals` that keys_of may write to.
  Index interval_capacity() const {
    return (std::max)(interval_count() - a_.count() + a_.interval_capacity(),
                      interval_count() + b_.interval_capacity());
  }
  /// The step of A: position i sees only keys j with (i - j) mod step = 0.
  Index row_step() const { return a_.row_step(); }
  /// The keys that interval s counts, if row_step() is 1: those of A's interval.
  StridedRange strided_range(Index s) const { return a_.strided_range(s / pieces(), 0); }

  /// Writes the pieces in each interval of A. A's intervals are kept at the end of the result until
  /// they are cut: the pieces of one interval overwrite only places of earlier intervals. B's
  /// intervals come after them.
  void keys_of(Index i, std::span<Range> intervals) const {
    const std::span<Range> whole = detail::intervals_from(intervals, interval_count() - a_.count());
    const std::span<Range> holes = detail::intervals_from(intervals, interval_count());
    a_.keys_of(i, whole);
    if (causal_cut()) {
      b_.keys_of(i,
                 holes);  // Keys after i, which B's causal cut would spare, are cut from A anyway.
    } else {
      b_.cut_keys_of(i, holes);
    }
    for (Index s = 0; s < a_.count(); ++s) {
      const StridedRange strided_range = a_.strided_range(s, floor_mod(i, a_.row_step()));
      const Range interval = detail::interval_at(whole, s);
      cut(interval, strided_range, i, holes, detail::intervals_from(intervals, s * pieces()));
    }
  }

  /// Whether the intervals still need the causal cut, as for A.
  bool causal_cut() const { return a_.causal_cut(); }
  /// Positions [i, same_until(i)) with i's residue have the same intervals.
  Index same_until(Index i) const {
    return (std::min)(a_.same_until(i), causal_cut() ? b_.same_until(i) : b_.cut_same_until(i));
  }
  /// The first position after i where a block of rows must begin, as for A.
  Index next_cut(Index i) const { return a_.next_cut(i); }
  /// Rows that see nearly the same keys begin at multiples of this, as for A; 0 if there is none.
  Index row_block() const { return a_.row_block(); }
  /// A range that contains every position that sees one of the keys in A.
  Range seen_from(const Range& keys) const { return a_.seen_from(keys); }
  /// If this is false, no position of `rows` sees a key of `keys` in A.
  bool meets(const Range& rows, const Range& keys) const { return a_.meets(rows, keys); }

  /// The plan for one sequence.
  IntervalPlan<Difference> plan(const SequenceShape& shape) const { return {*this, shape}; }

 private:
  Index pieces() const { return b_.count() + 1; }

  /// Cuts one interval of A into the pieces that B leaves, in any order.
  void cut(const Range& interval, const StridedRange& strided_range, Index i,
           std::span<Range> holes, std::span<Range> to) const {
    Index count = 1;
    to[0] = interval;
    for (Index h = 0; h < b_.count(); ++h) {
      Range hole = detail::interval_at(holes, h);
      if (b_.strided_range(h, floor_mod(i, b_.row_step())) != strided_range)
        hole = strided_range.points(hole);
      Range behind;
      for (Index n = 0; n < count; ++n) {
        Range& piece = detail::interval_at(to, n);
        if (!piece.meets(hole)) continue;
        // The pieces are disjoint, so only one of them reaches beyond the hole.
        if (hole.end < piece.end) behind = {hole.end, piece.end};
        piece.end = (std::max)(piece.begin, hole.begin);
      }
      detail::interval_at(to, count++) = behind;
    }
  }

  Intervals<A> a_;
  Intervals<B> b_;
};

/// The intersection of two patterns, with one interval for each pair of an interval of A and an
/// interval of B.
template <IntervalPattern A, IntervalPattern B>
class Intersection {
 public:
  /// \throws std::invalid_argument if the patterns group rows by different steps that are both more
  /// than 1, or if two strided ranges differ and neither is all keys
  Intersection(const A& a, const B& b) : a_(a), b_(b) {
    if (a_.row_step() > 1 && b_.row_step() > 1 && a_.row_step() != b_.row_step()) {
      refuse("intersect",
             "the row steps of the patterns are " + std::to_string(a_.row_step()) + " and " +
                 std::to_string(b_.row_step()),
             "expected equal steps, or one that is 1; EnumeratedPattern supports any pattern");
    }
    detail::check_strided_ranges("intersect", a_, b_, [&](Index s, Index t) {
      return detail::can_cut(a_, s, b_, t) || detail::can_cut(b_, t, a_, s);
    });
  }

  /// Whether the query at position i sees key j.
  bool allows(Index i, Index j) const { return a_.allows(i, j) && b_.allows(i, j); }

  /// The same pattern for a sequence of this many keys, without unused intervals.
  Intersection up_to(Index keys) const { return {a_.up_to(keys), b_.up_to(keys)}; }
  /// The number of intervals: the product of those of A and B.
  Index interval_count() const { return a_.count() * b_.count(); }
  /// The number of elements of `intervals` that keys_of may write to.
  Index interval_capacity() const {
    return (std::max)(interval_count() + a_.interval_capacity(),
                      interval_count() + a_.count() + b_.interval_capacity());
  }
  /// The larger step: position i sees only keys j with (i - j) mod step = 0.
  Index row_step() const { return (std::max)(a_.row_step(), b_.row_step()); }
  /// The keys that interval s counts, if row_step() is 1.
  StridedRange strided_range(Index s) const { return shared_strided_range(s, 0); }

  /// Writes the intersection in each interval of A with each interval of B.
  void keys_of(Index i, std::span<Range> intervals) const {
    const std::span<Range> of_a = detail::intervals_from(intervals, interval_count());
    const std::span<Range> of_b = detail::intervals_from(intervals, interval_count() + a_.count());
    a_.keys_of(i, of_a);
    b_.keys_of(i, of_b);
    for (Index s = 0; s < interval_count(); ++s) {
      const StridedRange strided_range = shared_strided_range(s, i);
      Range x = detail::interval_at(of_a, s / b_.count());
      Range y = detail::interval_at(of_b, s % b_.count());
      if (strided_range_of_a(s, i) != strided_range) x = strided_range.points(x);
      if (strided_range_of_b(s, i) != strided_range) y = strided_range.points(y);
      detail::interval_at(intervals, s) = x.within(y);
    }
  }

  /// Whether the intervals still need the causal cut: if either pattern does.
  bool causal_cut() const { return a_.causal_cut() || b_.causal_cut(); }
  /// Positions [i, same_until(i)) with i's residue have the same intervals.
  Index same_until(Index i) const { return (std::min)(a_.same_until(i), b_.same_until(i)); }
  /// The first position after i where a block of rows must begin.
  Index next_cut(Index i) const { return (std::min)(a_.next_cut(i), b_.next_cut(i)); }
  /// Rows that see nearly the same keys begin at multiples of this; 0 if there is none.
  Index row_block() const { return (std::max)(a_.row_block(), b_.row_block()); }
  /// A range that contains every position that sees one of the keys.
  Range seen_from(const Range& keys) const { return a_.seen_from(keys).within(b_.seen_from(keys)); }
  /// If this is false, no position of `rows` sees a key of `keys`.
  bool meets(const Range& rows, const Range& keys) const {
    return a_.meets(rows, keys) && b_.meets(rows, keys);
  }

  /// The plan for one sequence.
  IntervalPlan<Intersection> plan(const SequenceShape& shape) const { return {*this, shape}; }

 private:
  StridedRange strided_range_of_a(Index s, Index i) const {
    return a_.strided_range(s / b_.count(), floor_mod(i, a_.row_step()));
  }
  StridedRange strided_range_of_b(Index s, Index i) const {
    return b_.strided_range(s % b_.count(), floor_mod(i, b_.row_step()));
  }
  /// The strided range of interval s at position i: the one of the two that is not all keys.
  StridedRange shared_strided_range(Index s, Index i) const {
    const StridedRange a = strided_range_of_a(s, i);
    return a.step > 1 ? a : strided_range_of_b(s, i);
  }

  Intervals<A> a_;
  Intervals<B> b_;
};

/// The union of two patterns that the caller knows to be disjoint. Cheaper than `unite`.
template <IntervalPattern A, IntervalPattern B>
DisjointUnion<A, B> join(const A& a, const B& b) {
  return {a, b};
}

/// The difference of a and b.
template <IntervalPattern A, IntervalPattern B>
Difference<A, B> subtract(const A& a, const B& b) {
  return {a, b};
}

/// The union of a and b. The first pattern's intervals stay whole; the second's are cut.
template <IntervalPattern A, IntervalPattern B>
DisjointUnion<A, Difference<B, A>> unite(const A& a, const B& b) {
  return {a, subtract(b, a)};
}

/// The intersection of a and b.
template <IntervalPattern A, IntervalPattern B>
Intersection<A, B> intersect(const A& a, const B& b) {
  return {a, b};
}

FOVEA_NAMESPACE_END
