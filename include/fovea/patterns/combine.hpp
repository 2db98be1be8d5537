// SPDX-License-Identifier: MIT
/// \file
/// Combinations of two patterns: union, difference and intersection. The intervals are cut for each
/// position, so that no key is counted twice.
#pragma once

#include <string>

#include "fovea/core/error.hpp"
#include "fovea/patterns/slot_plan.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The slots from index `first` on.
inline std::span<Range> slots_from(std::span<Range> slots, Index first) {
  return slots.subspan(static_cast<std::size_t>(first));
}

/// Slot s.
inline Range& slot_at(std::span<Range> slots, Index s) {
  return slots[static_cast<std::size_t>(s)];
}

/// Whether intervals of slot s of `by` can cut those of slot t of `of`: the lattice of `by` must be
/// all keys, or equal that of `of` for every position.
template <class A, class B>
bool can_cut(const Slots<A>& by, Index s, const Slots<B>& of, Index t) {
  const Lattice lattice = by.lattice(s, 0);
  return lattice.step == 1 || (by.row_step() == of.row_step() && lattice == of.lattice(t, 0));
}

/// \throws std::invalid_argument if fits(s, t) is false for some slot s of a and slot t of b
template <class A, class B, class Fits>
void check_lattices(const char* op, const Slots<A>& a, const Slots<B>& b, Fits&& fits) {
  for (Index s = 0; s < a.count(); ++s) {
    for (Index t = 0; t < b.count(); ++t) {
      if (fits(s, t)) continue;
      const auto name = [](const Lattice& x) {
        return std::to_string(x.phase) + " + " + std::to_string(x.step) + " t";
      };
      refuse(
          op,
          "the patterns have keys at " + name(a.lattice(s, 0)) + " and at " + name(b.lattice(t, 0)),
          "expected all keys or the same ones; EnumeratedPattern takes any law");
    }
  }
}

}  // namespace detail

/// The union of two disjoint patterns: a position sees what either shows.
template <SlotPattern A, SlotPattern B>
class Joined {
 public:
  /// \throws std::invalid_argument if the patterns group rows by different steps; use `in_stages`
  /// for those
  Joined(const A& a, const B& b) : a_(a), b_(b) {
    if (a_.row_step() != b_.row_step()) {
      refuse("unite",
             "the row steps of the patterns are " + std::to_string(a_.row_step()) + " and " +
                 std::to_string(b_.row_step()),
             "expected equal ones; in_stages takes any");
    }
  }

  /// Whether the query at position i sees key j.
  bool allows(Index i, Index j) const { return a_.allows(i, j) || b_.allows(i, j); }

  /// The same pattern for a sequence of this many keys, without unused slots.
  Joined up_to(Index keys) const { return {a_.up_to(keys), b_.up_to(keys)}; }
  /// The number of slots: those of a, then those of b.
  Index slot_count() const { return a_.count() + b_.count(); }
  /// The number of elements of `slots` that keys_of may write to.
  Index room() const { return (std::max)(a_.room(), a_.count() + b_.room()); }
  /// The step of both patterns: position i sees only keys j with (i - j) mod step = 0.
  Index row_step() const { return a_.row_step(); }
  /// The keys that the interval of slot s counts, if row_step() is 1.
  Lattice lattice(Index s) const {
    return s < a_.count() ? a_.lattice(s, 0) : b_.lattice(s - a_.count(), 0);
  }

  /// Writes the intervals of a, then those of b. They have the causal cut unless causal_cut().
  void keys_of(Index i, std::span<Range> slots) const {
    const std::span<Range> of_b = detail::slots_from(slots, a_.count());
    if (causal_cut()) {
      a_.keys_of(i, slots);
      b_.keys_of(i, of_b);
    } else {
      a_.cut_keys_of(i, slots);
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
  SlotPlan<Joined> plan(const SequenceShape& shape) const { return {*this, shape}; }

 private:
  Slots<A> a_;
  Slots<B> b_;
};

/// The difference of two patterns: what A shows and B does not. Each slot of A becomes one more
/// slot than B has.
template <SlotPattern A, SlotPattern B>
class Difference {
 public:
  /// \throws std::invalid_argument if a slot of B has a lattice that is neither all keys nor that
  /// of A
  Difference(const A& a, const B& b) : a_(a), b_(b) {
    detail::check_lattices("subtract", a_, b_,
                           [&](Index s, Index t) { return detail::can_cut(b_, t, a_, s); });
  }

  /// Whether the query at position i sees key j.
  bool allows(Index i, Index j) const { return a_.allows(i, j) && !b_.allows(i, j); }

  /// The same pattern for a sequence of this many keys, without unused slots.
  Difference up_to(Index keys) const { return {a_.up_to(keys), b_.up_to(keys)}; }
  /// The number of slots: for each one of A, its pieces.
  Index slot_count() const { return a_.count() * pieces(); }
  /// The number of elements of `slots` that keys_of may write to.
  Index room() const {
    return (std::max)(slot_count() - a_.count() + a_.room(), slot_count() + b_.room());
  }
  /// The step of A: position i sees only keys j with (i - j) mod step = 0.
  Index row_step() const { return a_.row_step(); }
  /// The keys that the interval of slot s counts, if row_step() is 1: those of A's slot.
  Lattice lattice(Index s) const { return a_.lattice(s / pieces(), 0); }

  /// Writes the pieces of each slot of A. A's intervals are kept at the end of the result until
  /// they are cut: the pieces of one slot overwrite only places of earlier slots. B's intervals
  /// come after them.
  void keys_of(Index i, std::span<Range> slots) const {
    const std::span<Range> whole = detail::slots_from(slots, slot_count() - a_.count());
    const std::span<Range> holes = detail::slots_from(slots, slot_count());
    a_.keys_of(i, whole);
    if (causal_cut()) {
      b_.keys_of(i,
                 holes);  // Keys after i, which B's causal cut would spare, are cut from A anyway.
    } else {
      b_.cut_keys_of(i, holes);
    }
    for (Index s = 0; s < a_.count(); ++s) {
      const Lattice lattice = a_.lattice(s, floor_mod(i, a_.row_step()));
      const Range slot = detail::slot_at(whole, s);
      cut(slot, lattice, i, holes, detail::slots_from(slots, s * pieces()));
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
  SlotPlan<Difference> plan(const SequenceShape& shape) const { return {*this, shape}; }

 private:
  Index pieces() const { return b_.count() + 1; }

  /// Cuts one slot of A into the pieces that B leaves, in any order.
  void cut(const Range& slot, const Lattice& lattice, Index i, std::span<Range> holes,
           std::span<Range> to) const {
    Index count = 1;
    to[0] = slot;
    for (Index h = 0; h < b_.count(); ++h) {
      Range hole = detail::slot_at(holes, h);
      if (b_.lattice(h, floor_mod(i, b_.row_step())) != lattice) hole = lattice.points(hole);
      Range behind;
      for (Index n = 0; n < count; ++n) {
        Range& piece = detail::slot_at(to, n);
        if (!piece.meets(hole)) continue;
        // The pieces are disjoint, so only one of them reaches beyond the hole.
        if (hole.end < piece.end) behind = {hole.end, piece.end};
        piece.end = (std::max)(piece.begin, hole.begin);
      }
      detail::slot_at(to, count++) = behind;
    }
  }

  Slots<A> a_;
  Slots<B> b_;
};

/// The intersection of two patterns, with one slot for each pair of a slot of A and a slot of B.
template <SlotPattern A, SlotPattern B>
class Intersection {
 public:
  /// \throws std::invalid_argument if the patterns group rows by different steps that are both more
  /// than 1, or if two lattices differ and neither is all keys
  Intersection(const A& a, const B& b) : a_(a), b_(b) {
    if (a_.row_step() > 1 && b_.row_step() > 1 && a_.row_step() != b_.row_step()) {
      refuse("intersect",
             "the row steps of the patterns are " + std::to_string(a_.row_step()) + " and " +
                 std::to_string(b_.row_step()),
             "expected equal ones, or one that is 1; EnumeratedPattern takes any law");
    }
    detail::check_lattices("intersect", a_, b_, [&](Index s, Index t) {
      return detail::can_cut(a_, s, b_, t) || detail::can_cut(b_, t, a_, s);
    });
  }

  /// Whether the query at position i sees key j.
  bool allows(Index i, Index j) const { return a_.allows(i, j) && b_.allows(i, j); }

  /// The same pattern for a sequence of this many keys, without unused slots.
  Intersection up_to(Index keys) const { return {a_.up_to(keys), b_.up_to(keys)}; }
  /// The number of slots: the product of those of A and B.
  Index slot_count() const { return a_.count() * b_.count(); }
  /// The number of elements of `slots` that keys_of may write to.
  Index room() const {
    return (std::max)(slot_count() + a_.room(), slot_count() + a_.count() + b_.room());
  }
  /// The larger step: position i sees only keys j with (i - j) mod step = 0.
  Index row_step() const { return (std::max)(a_.row_step(), b_.row_step()); }
  /// The keys that the interval of slot s counts, if row_step() is 1.
  Lattice lattice(Index s) const { return shared_lattice(s, 0); }

  /// Writes the intersection of each slot of A with each slot of B.
  void keys_of(Index i, std::span<Range> slots) const {
    const std::span<Range> of_a = detail::slots_from(slots, slot_count());
    const std::span<Range> of_b = detail::slots_from(slots, slot_count() + a_.count());
    a_.keys_of(i, of_a);
    b_.keys_of(i, of_b);
    for (Index s = 0; s < slot_count(); ++s) {
      const Lattice lattice = shared_lattice(s, i);
      Range x = detail::slot_at(of_a, s / b_.count());
      Range y = detail::slot_at(of_b, s % b_.count());
      if (lattice_of_a(s, i) != lattice) x = lattice.points(x);
      if (lattice_of_b(s, i) != lattice) y = lattice.points(y);
      detail::slot_at(slots, s) = x.within(y);
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
  SlotPlan<Intersection> plan(const SequenceShape& shape) const { return {*this, shape}; }

 private:
  Lattice lattice_of_a(Index s, Index i) const {
    return a_.lattice(s / b_.count(), floor_mod(i, a_.row_step()));
  }
  Lattice lattice_of_b(Index s, Index i) const {
    return b_.lattice(s % b_.count(), floor_mod(i, b_.row_step()));
  }
  /// The lattice of slot s at position i: the one of the two that is not all keys.
  Lattice shared_lattice(Index s, Index i) const {
    const Lattice a = lattice_of_a(s, i);
    return a.step > 1 ? a : lattice_of_b(s, i);
  }

  Slots<A> a_;
  Slots<B> b_;
};

/// The union of two patterns that the caller knows to be disjoint. Cheaper than `unite`.
template <SlotPattern A, SlotPattern B>
Joined<A, B> join(const A& a, const B& b) {
  return {a, b};
}

/// The difference of a and b.
template <SlotPattern A, SlotPattern B>
Difference<A, B> subtract(const A& a, const B& b) {
  return {a, b};
}

/// The union of a and b. The first pattern's intervals stay whole; the second's are cut.
template <SlotPattern A, SlotPattern B>
Joined<A, Difference<B, A>> unite(const A& a, const B& b) {
  return {a, subtract(b, a)};
}

/// The intersection of a and b.
template <SlotPattern A, SlotPattern B>
Intersection<A, B> intersect(const A& a, const B& b) {
  return {a, b};
}

FOVEA_NAMESPACE_END
