// SPDX-License-Identifier: MIT
/// \file
/// Patterns: which key each query sees, as integers; and plans, what a pattern becomes for a
/// sequence: blocks of queries with the runs of keys that they see.
#pragma once

#include <algorithm>
#include <concepts>
#include <limits>
#include <memory>
#include <span>

#include "fovea/core/key_run.hpp"

FOVEA_NAMESPACE_BEGIN

/// Where causal attention with Nq != Nk puts query row 0.
enum class CausalAlignment {
  bottom_right,  ///< queries end where keys end: row r has position r + Nk - Nq
  top_left,      ///< row r has position r
};

/// The integers of one sequence: row r of the queries has the position r + first_position.
struct SequenceShape {
  Index queries = 0;
  Index keys = 0;
  Index first_position = 0;

  static constexpr SequenceShape of(Index queries, Index keys, CausalAlignment alignment) {
    return {queries, keys, alignment == CausalAlignment::bottom_right ? keys - queries : 0};
  }
};

/// The integers from `begin` up to, not including, `end`; none if begin >= end.
struct Range {
  Index begin = 0;
  Index end = 0;

  /// Whether it holds no integer.
  constexpr bool is_empty() const { return begin >= end; }
  /// Whether x is one of its integers.
  constexpr bool holds(Index x) const { return begin <= x && x < end; }
  /// Whether some integer is in both.
  constexpr bool meets(const Range& other) const {
    return (std::max)(begin, other.begin) < (std::min)(end, other.end);
  }
  /// The integers that are in both.
  constexpr Range within(const Range& other) const {
    return {(std::max)(begin, other.begin), (std::min)(end, other.end)};
  }
  friend constexpr bool operator==(const Range&, const Range&) = default;
};

/// Beyond every position and key, with room to compute.
inline constexpr Index kFarPosition = kUnboundedKeys / 4;

/// Every position, or every key.
inline constexpr Range kEverywhere = {-kFarPosition, kFarPosition};

/// Rounds to minus infinity. \pre b > 0
constexpr Index floor_div(Index a, Index b) { return a / b - (a % b < 0 ? 1 : 0); }

/// In [0, b). \pre b > 0
constexpr Index floor_mod(Index a, Index b) { return a % b + (a % b < 0 ? b : 0); }

/// `pairs` and those of so many rows with so many keys each; the largest Index, if that does not
/// fit. All >= 0.
constexpr Index add_pairs(Index pairs, Index rows, Index keys) {
  constexpr Index most = (std::numeric_limits<Index>::max)();
  return keys > 0 && rows > (most - pairs) / keys ? most : pairs + rows * keys;
}

/// The keys of a run that row r of its block sees, as points t of the run.
inline Range seen_by(const KeyRun& run, Index r) {
  return run.lower == nullptr ? Range{0, run.count} : Range{run.lower[r], run.upper[r]};
}

/// How far before and after its own position a query sees keys: nothing further, in any sequence.
struct Reach {
  Index before = kFarPosition;
  Index after = kFarPosition;
};

/// The keys j with j mod stride in `columns`: queries see no others, in any sequence. By default
/// all. \invariant columns lie in [0, stride)
struct KeyColumns {
  Index stride = 1;
  Range columns = {0, 1};

  constexpr bool are_all() const { return columns.end - columns.begin >= stride; }
};

/// Storage of one block that a plan fills on request; one per thread. The default serves plans of
/// one run and stays on the stack; for others give it the plan's `most_runs()`.
class BlockStorage {
 public:
  BlockStorage() = default;

  /// \throws std::bad_alloc. Memory: 8 kB per run.
  explicit BlockStorage(Index runs)
      : capacity_(std::max<Index>(runs, 1)), heap_(runs > 1 ? new Run[size()] : nullptr) {
    if (runs > 1) runs_.reset(new KeyRun[size()]);
    if (runs > 1) slots_.reset(new Range[size()]);
    if (runs > 1) states_.reset(new Slot[size()]);
  }

  /// Bytes of one with that many runs.
  static constexpr Index bytes(Index runs) {
    constexpr Index run = sizeof(Run) + sizeof(KeyRun) + sizeof(Range) + sizeof(Slot);
    return Index{sizeof(BlockStorage)} + (runs > 1 ? runs * run : 0);
  }

  /// Of runs.
  Index capacity() const { return capacity_; }

  KeyRun* runs() { return runs_ ? runs_.get() : &run_; }
  Index* lower(Index run) { return bounds(run).lower; }
  Index* upper(Index run) { return bounds(run).upper; }

  /// A slot of a pattern while its block is made: keys phase + step * t for t in [0, points).
  struct Slot {
    Index phase;
    Index step;
    Index points;
    Index begin;   // the first that a row sees
    Index end;     // and the last, from the rows so far
    bool written;  // whether lower and upper hold the rows so far
    bool same;     // whether these see the same
  };

  Slot& slot(Index run) { return states_ ? states_[static_cast<std::size_t>(run)] : state_; }

  /// What one row sees, while it is looked at.
  std::span<Range> slots() { return {slots_ ? slots_.get() : &slot_, size()}; }

 private:
  struct Run {
    // The rest of a line keeps the bounds of a row out of one set of the cache.
    Index lower[kMaxBlockRows + 8];
    Index upper[kMaxBlockRows + 8];
  };

  std::size_t size() const { return static_cast<std::size_t>(capacity_); }
  Run& bounds(Index run) { return heap_ ? heap_[static_cast<std::size_t>(run)] : bounds_; }

  Index capacity_ = 1;
  std::unique_ptr<Run[]> heap_;
  std::unique_ptr<KeyRun[]> runs_;
  std::unique_ptr<Range[]> slots_;
  std::unique_ptr<Slot[]> states_;
  KeyRun run_;
  Range slot_;
  Slot state_;
  Run bounds_;
};

/// A pattern for one sequence: a number of blocks that together hold every query row once. Cheap
/// to copy; asking for a block allocates nothing.
template <class P>
concept Plan = requires(const P plan, Index b, BlockStorage& storage) {
  /// how many blocks
  { plan.block_count() } -> std::convertible_to<Index>;
  /// block b; its runs may point into the storage
  { plan.block(b, storage) } -> std::same_as<QueryBlock>;
  /// how many (query, key) pairs are visible; the largest Index, if they are more
  { plan.visible_pairs() } -> std::convertible_to<Index>;
};

/// Which key each query sees. Positions are absolute; a key is a position in [0, keys).
template <class P>
concept Pattern = requires(const P pattern, const SequenceShape& shape, Index i, Index j) {
  /// the law: whether the query at position i sees key j
  { pattern.allows(i, j) } -> std::same_as<bool>;
  /// the law as blocks and runs, enumerated against `allows` by the tests
  { pattern.plan(shape) } -> Plan;
};

/// Query rows of one block: few enough blocks that K and V are read rarely, enough of them to
/// share out a short sequence. Depends on the shape alone.
constexpr Index block_rows(Index queries) {
  return std::clamp((queries / 8 + 63) / 64 * 64, Index{64}, kMaxBlockRows);
}

FOVEA_NAMESPACE_END
