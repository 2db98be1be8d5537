// SPDX-License-Identifier: MIT
/// \file
/// Patterns of slots: a position sees one interval of keys per slot, and what else such a pattern
/// may say of itself. SlotPlan makes the plan.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// The keys phase + step * t. \invariant 0 <= phase < step
struct Lattice {
  Index phase = 0;
  Index step = 1;

  /// Its points in [0, keys).
  constexpr Index size(Index keys) const {
    if (step == 1) return keys;
    return phase < keys ? (keys - 1 - phase) / step + 1 : 0;
  }
  /// Its points among the keys of an interval of keys.
  constexpr Range points(const Range& keys) const {
    if (step == 1) return keys;
    return {-floor_div(phase - keys.begin, step), -floor_div(phase - keys.end, step)};
  }
  friend constexpr bool operator==(const Lattice&, const Lattice&) = default;
};

/// One slot: `keys_of(i)` says what position i sees, not cut to the sequence.
template <class P>
concept OneSlotPattern = requires(const P pattern, Index i) {
  { pattern.allows(i, i) } -> std::same_as<bool>;
  { pattern.keys_of(i) } -> std::same_as<Range>;
};

/// `slot_count()` slots: `keys_of(i, slots)` writes what position i sees of each, disjoint and not
/// cut to the sequence.
template <class P>
concept SlotsPattern = requires(const P pattern, Index i, std::span<Range> slots) {
  { pattern.allows(i, i) } -> std::same_as<bool>;
  { pattern.slot_count() } -> std::convertible_to<Index>;
  pattern.keys_of(i, slots);
};

/// A pattern that SlotPlan can plan; none of these functions throws. Beside the required ones it
/// may have, each with its default:
/// - `up_to(keys)` (itself): the same for a sequence of so many keys, its slots fewer if the others
///   hold no such key; the rest keep their order. What a plan costs follows from it.
/// - `row_step()` (1): l > 1 says that position i sees only keys j with (i - j) mod l = 0; the
///   intervals then count the keys of that residue, and rows of one residue are computed together.
/// - `lattice(slot)` (all keys): what the intervals of a slot count, if row_step is 1.
/// - `key_step()` (row_step()): blocks of keys of the backward pass hold one residue modulo it. The
///   steps of all slots are multiples of it.
/// - `room()` (slot_count()): elements of `slots` that keys_of may write to.
/// - `most_keys()` (no bound): keys that a row sees at most, of a pattern with one slot.
/// - `reach()` (no bound): how far before and after itself a position sees keys.
/// - `key_columns()` (all): the only keys that positions see.
/// - `same_until(i)` (i + 1): positions [i, same_until(i)), of the residue of i, have the same
///   intervals.
/// - `linear_until(i)` (none): from each position of [i, linear_until(i)), of the residue of i, to
///   the next, a bound of an interval moves by the same number of keys. Not with causal_cut.
/// - `causal_cut()` (false): the intervals are yet to be cut to keys up to i, so more positions
///   may have the same.
/// - `next_cut(i)` (far): the first position behind i where a block of rows must begin.
/// - `row_block()` (none): rows that see nearly the same begin at multiples of it.
/// - `seen_from(keys)` (everywhere): holds every position that sees a key of an interval.
/// - `meets(rows, keys)` (rows meet seen_from(keys)): false if no position of `rows` sees one of
///   `keys`.
template <class P>
concept SlotPattern = OneSlotPattern<P> || SlotsPattern<P>;

/// A slot pattern that says how long its intervals move alike.
template <class P>
concept LinearSlots = SlotPattern<P> && requires(const P pattern, Index i) {
  { pattern.linear_until(i) } -> std::same_as<Index>;
};

/// A slot pattern with all that it may say, said or not.
template <class P>
class Slots {
 public:
  explicit Slots(const P& pattern) : pattern_(pattern) {}

  const P& pattern() const { return pattern_; }
  P up_to(Index keys) const {
    if constexpr (requires { pattern_.up_to(keys); }) {
      return pattern_.up_to(keys);
    } else {
      return pattern_;
    }
  }
  bool allows(Index i, Index j) const { return pattern_.allows(i, j); }

  Index count() const {
    if constexpr (OneSlotPattern<P>) {
      return 1;
    } else {
      return pattern_.slot_count();
    }
  }

  Index room() const {
    if constexpr (requires { pattern_.room(); }) {
      return pattern_.room();
    } else {
      return count();
    }
  }

  void keys_of(Index i, std::span<Range> slots) const {
    if constexpr (OneSlotPattern<P>) {
      slots[0] = pattern_.keys_of(i);
    } else {
      pattern_.keys_of(i, slots);
    }
  }

  bool causal_cut() const {
    if constexpr (requires { pattern_.causal_cut(); }) {
      return pattern_.causal_cut();
    } else {
      return false;
    }
  }

  /// `keys_of`, cut, and how long it holds.
  void cut_keys_of(Index i, std::span<Range> slots) const {
    keys_of(i, slots);
    for (Index s = 0; causal_cut() && s < count(); ++s) {
      Range& slot = slots[static_cast<std::size_t>(s)];
      slot.end = (std::min)(slot.end, lattice(s, floor_mod(i, row_step())).points({i, i + 1}).end);
    }
  }
  Index cut_same_until(Index i) const { return causal_cut() ? i + 1 : same_until(i); }

  Index row_step() const {
    if constexpr (requires { pattern_.row_step(); }) {
      return pattern_.row_step();
    } else {
      return 1;
    }
  }

  Index key_step() const {
    if constexpr (requires { pattern_.key_step(); }) {
      return pattern_.key_step();
    } else {
      return row_step();
    }
  }

  /// Whether a slot has keys of the residue of a key modulo key_step().
  bool has_residue_of(Index key) const {
    if (key_step() == row_step()) return true;
    for (Index s = 0; s < count(); ++s) {
      if (floor_mod(key - lattice(s, 0).phase, key_step()) == 0) return true;
    }
    return false;
  }

  /// Of the positions of a residue modulo row_step().
  Lattice lattice(Index slot, Index residue) const {
    if (row_step() > 1) return {residue, row_step()};
    if constexpr (requires { pattern_.lattice(slot); }) {
      return pattern_.lattice(slot);
    } else {
      return {};
    }
  }

  Index most_keys() const {
    if constexpr (OneSlotPattern<P> && requires { pattern_.most_keys(); }) {
      return pattern_.most_keys();
    } else {
      return kUnboundedKeys;
    }
  }

  Index same_until(Index i) const {
    if constexpr (requires { pattern_.same_until(i); }) {
      return pattern_.same_until(i);
    } else {
      return i + 1;
    }
  }

  Index next_cut(Index i) const {
    if constexpr (requires { pattern_.next_cut(i); }) {
      return pattern_.next_cut(i);
    } else {
      return kFarPosition;
    }
  }

  /// 0: none
  Index row_block() const {
    if constexpr (requires { pattern_.row_block(); }) {
      return pattern_.row_block();
    } else {
      return 0;
    }
  }

  Range seen_from(const Range& keys) const {
    if constexpr (requires { pattern_.seen_from(keys); }) {
      return pattern_.seen_from(keys);
    } else {
      return kEverywhere;
    }
  }

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
