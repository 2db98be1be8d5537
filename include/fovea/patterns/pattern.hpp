// SPDX-License-Identifier: MIT
/// \file
/// Patterns and plans. A pattern defines which keys each query sees. A plan is a pattern applied to
/// one sequence: blocks of queries, with the runs of keys that they see.
#pragma once

#include <algorithm>
#include <concepts>
#include <limits>
#include <memory>
#include <span>

#include "fovea/core/key_run.hpp"
#include "fovea/core/workspace.hpp"

FOVEA_NAMESPACE_BEGIN

/// The position of query row 0 among the keys, which determines the positions of all rows.
enum class CausalAlignment {
  bottom_right,  ///< Queries end where the rows of k end: row r has position r + Nk - Nq.
  top_left,      ///< Queries begin where keys begin: row r has position r.
  /// Queries end where the keys of their sequence end: row r of batch entry b has position r +
  /// key_lengths[b] - Nq, which is negative for the first rows if there are more queries than keys.
  /// Without key lengths, and in packed sequences, it is bottom_right.
  key_length,
};

/// The sizes of one sequence. Row r of the queries has the position r + first_position.
struct SequenceShape {
  Index queries = 0;         ///< Nq, the number of query rows
  Index keys = 0;            ///< Nk, the number of keys; their positions are [0, Nk)
  Index first_position = 0;  ///< the position of query row 0

  /// The shape whose first position follows from the alignment, if all keys are visible.
  static constexpr SequenceShape of(Index queries, Index keys, CausalAlignment alignment) {
    return {queries, keys, alignment == CausalAlignment::top_left ? 0 : keys - queries};
  }
};

/// The integers from `begin` up to but not including `end`. There are none if begin >= end.
struct Range {
  Index begin = 0;  ///< the first integer
  Index end = 0;    ///< one past the last integer

  /// Whether it is empty.
  constexpr bool is_empty() const { return begin >= end; }
  /// Whether it contains x.
  constexpr bool holds(Index x) const { return begin <= x && x < end; }
  /// Whether the ranges intersect.
  constexpr bool meets(const Range& other) const {
    return (std::max)(begin, other.begin) < (std::min)(end, other.end);
  }
  /// The intersection.
  constexpr Range within(const Range& other) const {
    return {(std::max)(begin, other.begin), (std::min)(end, other.end)};
  }
  /// Whether both ends are the same; empty ranges may differ.
  friend constexpr bool operator==(const Range&, const Range&) = default;
};

/// A position or key beyond all others that leaves room for arithmetic.
inline constexpr Index kFarPosition = kUnboundedKeys / 4;

/// The range of every position, or of every key. Its end is behind that of any window, also of one
/// at position 2^62.
inline constexpr Range kEverywhere = {-kFarPosition, kUnboundedKeys - kFarPosition};

/// a / b, rounded down. \pre b > 0
constexpr Index floor_div(Index a, Index b) { return a / b - (a % b < 0 ? 1 : 0); }

/// a / b, rounded up. Nothing overflows, however large b is. \pre b > 0
constexpr Index ceil_div(Index a, Index b) { return a / b + (a % b > 0 ? 1 : 0); }

/// a modulo b, in [0, b). \pre b > 0
constexpr Index floor_mod(Index a, Index b) { return a % b + (a % b < 0 ? b : 0); }

/// pairs + rows * keys, or the largest Index if that does not fit.
/// \pre all arguments are at least 0
constexpr Index add_pairs(Index pairs, Index rows, Index keys) {
  constexpr Index most = (std::numeric_limits<Index>::max)();
  return keys > 0 && rows > (most - pairs) / keys ? most : pairs + rows * keys;
}

/// The keys of a run that row r of its block sees, as points t of the run.
inline Range seen_by(const KeyRun& run, Index r) {
  return run.lower == nullptr ? Range{0, run.count} : Range{run.lower[r], run.upper[r]};
}

/// How far before and after its own position a query can see keys, in any sequence. By default
/// there are no bounds.
struct ReceptiveField {
  Index before = kFarPosition;  ///< no key further before the query is seen
  Index after = kFarPosition;   ///< no key further after the query is seen
};

/// The only keys that queries see, in any sequence: the keys j with j mod stride in `columns`. By
/// default these are all keys. \invariant columns are within [0, stride)
struct KeyColumns {
  Index stride = 1;        ///< the modulus, at least 1
  Range columns = {0, 1};  ///< the residues of the keys that are seen

  /// Whether these are all keys.
  constexpr bool are_all() const { return columns.end - columns.begin >= stride; }
};

/// Memory for one block, filled by a plan. Each thread needs its own. The default is for plans
/// whose blocks have one run; for others pass the plan's `most_runs()`.
class BlockStorage {
 public:
  /// Allocates memory for blocks of one run.
  /// \throws std::bad_alloc
  BlockStorage() : BlockStorage(1) {}

  /// Allocates memory for blocks of this many runs, about 8 kB for each.
  /// \throws std::bad_alloc
  explicit BlockStorage(Index runs)
      : capacity_(std::max<Index>(runs, 1)),
        own_(capacity_, kRunBytes),
        memory_(own_.data<std::byte>()) {
    begin_runs();
  }

  /// Uses bytes(runs) bytes of memory, which must outlive this object.
  /// \param memory aligned as a Workspace is
  BlockStorage(Index runs, std::byte* memory) noexcept
      : capacity_(std::max<Index>(runs, 1)), memory_(memory) {
    begin_runs();
  }

  /// The size in bytes of the memory for this many runs, a multiple of a cache line.
  static constexpr Index bytes(Index runs) {
    return (std::max<Index>(runs, 1) * kRunBytes + 63) / 64 * 64;
  }

  /// The number of runs that fit.
  Index capacity() const { return capacity_; }

  /// The runs of the block [capacity].
  KeyRun* runs() { return reinterpret_cast<KeyRun*>(memory_ + capacity_ * Index{sizeof(Run)}); }
  /// The lower bounds of a run, one for each row of the block.
  Index* lower(Index run) { return bounds(run).lower; }
  /// The upper bounds of a run, one for each row of the block.
  Index* upper(Index run) { return bounds(run).upper; }

  /// The state of one interval of a pattern while its block is built. The keys of the interval are
  /// phase + step * t for t in [0, points).
  struct RunState {
    Index phase;   ///< the key of point 0
    Index step;    ///< the distance between neighbouring keys
    Index points;  ///< number of the sequence's keys that the interval has
    Index begin;   ///< the first point that one of the rows so far sees
    Index end;     ///< one past the last point that one of the rows so far sees
    bool written;  ///< whether lower and upper hold the bounds of the rows so far
    bool same;     ///< whether all rows so far have the same bounds
  };

  /// The state of the interval that becomes this run.
  RunState& state(Index run) { return states()[run]; }

  /// The intervals of the current row, one for each interval.
  std::span<Range> intervals() {
    return {reinterpret_cast<Range*>(states() + capacity_), static_cast<std::size_t>(capacity_)};
  }

 private:
  struct Run {
    // The padding of one cache line keeps a row's two bounds out of the same cache set.
    Index lower[kMaxBlockRows + 8];
    Index upper[kMaxBlockRows + 8];
  };

  static constexpr Index kRunBytes =
      sizeof(Run) + sizeof(KeyRun) + sizeof(RunState) + sizeof(Range);

  RunState* states() { return reinterpret_cast<RunState*>(runs() + capacity_); }
  Run& bounds(Index run) { return reinterpret_cast<Run*>(memory_)[run]; }
  void begin_runs() { std::uninitialized_fill_n(runs(), capacity_, KeyRun{}); }

  Index capacity_;
  Workspace own_;      // empty if the memory is borrowed
  std::byte* memory_;  // Run, KeyRun, RunState and Range [capacity_] each
};

/// A pattern for one sequence, cut into blocks that together contain every query row once. A plan
/// is cheap to copy, and building a block allocates nothing.
template <class P>
concept Plan = requires(const P plan, Index b, BlockStorage& storage) {
  /// the number of blocks
  { plan.block_count() } -> std::convertible_to<Index>;
  /// block b, whose runs may point into the storage
  { plan.block(b, storage) } -> std::same_as<QueryBlock>;
  /// the number of visible (query, key) pairs; the largest Index if there are more
  { plan.attended_pairs() } -> std::convertible_to<Index>;
};

/// Defines which keys each query sees. Queries are given by absolute positions; a key is a position
/// in [0, keys).
template <class P>
concept Pattern = requires(const P pattern, const SequenceShape& shape, Index i, Index j) {
  /// whether the query at position i sees key j
  { pattern.allows(i, j) } -> std::same_as<bool>;
  /// the same for one sequence, as blocks and runs
  { pattern.plan(shape) } -> Plan;
};

/// The largest number of query rows in one block, for this many queries. Few blocks mean that K and
/// V are read rarely; enough blocks let threads share a short sequence. The number depends on the
/// shape alone, never on the number of threads.
constexpr Index block_rows(Index queries) {
  return std::clamp((queries / 8 + 63) / 64 * 64, Index{64}, kMaxBlockRows);
}

/// The largest number of keys in one block of the backward pass, likewise. There are fewer blocks,
/// since each of them loads the queries and the output's gradients into the lanes again.
constexpr Index key_block_rows(Index keys) {
  return std::clamp((keys / 4 + 63) / 64 * 64, Index{64}, kMaxBlockRows);
}

FOVEA_NAMESPACE_END
