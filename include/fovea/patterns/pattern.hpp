// SPDX-License-Identifier: MIT
/// \file
/// Patterns: which key each query sees, as integers; and plans, what a pattern becomes for a
/// sequence: blocks of queries with the runs of keys that they see.
#pragma once

#include <algorithm>
#include <concepts>

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

/// Storage of one block that a plan fills on request; one per thread.
struct BlockStorage {
  KeyRun run;
  Index lower[kMaxBlockRows];
  Index upper[kMaxBlockRows];
};

/// A pattern for one sequence: a number of blocks that together hold every query row once. Cheap
/// to copy; asking for a block allocates nothing.
template <class P>
concept Plan = requires(const P plan, Index b, BlockStorage& storage) {
  /// how many blocks
  { plan.block_count() } -> std::convertible_to<Index>;
  /// block b; its runs may point into the storage
  { plan.block(b, storage) } -> std::same_as<QueryBlock>;
  /// how many (query, key) pairs are visible
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

/// The plan of a pattern whose every query sees one interval of keys: `pattern.keys_of(i)` gives
/// its first key and one past its last, not yet cut to [0, keys), and `pattern.most_keys()` the
/// largest number of them.
template <class P>
class IntervalPlan {
 public:
  IntervalPlan(const P& pattern, const SequenceShape& shape)
      : pattern_(pattern), shape_(shape), rows_(block_rows(shape.queries)) {}

  Index block_count() const { return (shape_.queries + rows_ - 1) / rows_; }

  QueryBlock block(Index b, BlockStorage& storage) const {
    QueryBlock block{b * rows_,    1, std::min(rows_, shape_.queries - b * rows_),
                     &storage.run, 1, pattern_.most_keys()};
    Index begin = shape_.keys;
    Index end = 0;
    for (Index r = 0; r < block.count; ++r) {
      const auto [first, last] = interval(block.first + r);
      storage.lower[r] = first;
      storage.upper[r] = last;
      if (first < last) {
        begin = std::min(begin, first);
        end = std::max(end, last);
      }
    }
    if (begin >= end) block.run_count = 0;
    bool every = true;
    for (Index r = 0; r < block.count; ++r) {
      every = every && storage.lower[r] == begin && storage.upper[r] == end;
      const bool sees = storage.lower[r] < storage.upper[r];
      storage.lower[r] = sees ? storage.lower[r] - begin : 0;
      storage.upper[r] = sees ? storage.upper[r] - begin : 0;
    }
    storage.run = {begin, 1, end - begin, every ? nullptr : storage.lower,
                   every ? nullptr : storage.upper};
    return block;
  }

  Index visible_pairs() const {
    Index pairs = 0;
    for (Index r = 0; r < shape_.queries; ++r) {
      const auto [first, last] = interval(r);
      pairs += std::max(Index{0}, last - first);
    }
    return pairs;
  }

 private:
  struct Interval {
    Index first;
    Index last;
  };

  Interval interval(Index row) const {
    const auto [first, last] = pattern_.keys_of(row + shape_.first_position);
    const Index from = std::clamp(first, Index{0}, shape_.keys);
    return {from, std::clamp(last, from, shape_.keys)};
  }

  P pattern_;
  SequenceShape shape_;
  Index rows_;
};

FOVEA_NAMESPACE_END
