// SPDX-License-Identifier: MIT
/// \file
/// How rows and keys are cut into blocks: by residue classes of a step, each class in pieces.
#pragma once

#include <concepts>

#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

/// The indices `first + step * n` for n in [0, count).
struct RowBlock {
  Index first = 0;  ///< the first index
  Index step = 1;   ///< the distance between neighbouring indices, at least 1
  Index count = 0;  ///< the number of indices

  /// The range from the first index to one past the last, gaps included.
  constexpr Range span() const {
    return {first, count == 0 ? first : first + step * (count - 1) + 1};
  }
};

/// The keys whose gradients are computed together.
using KeyBlock = RowBlock;

/// Which gradients a block of queries or of keys takes part in: a pair of blocks adds to those that
/// both take part in.
struct GradientRoles {
  bool of_queries = true;  ///< the queries' gradients
  bool of_keys = true;     ///< the keys' and values' gradients
};

/// A plan whose keys are also cut into blocks, for the backward pass: every key is in one of them.
template <class P>
concept PartitionedPlan = Plan<P> &&
    requires(const P plan, Index b, Index p, const QueryBlock& block) {
  /// the largest number of runs in a block, for BlockStorage
  { plan.most_runs() } -> std::convertible_to<Index>;
  /// the number of blocks of keys
  { plan.key_block_count() } -> std::convertible_to<Index>;
  /// block p of the keys
  { plan.key_block(p) } -> std::same_as<KeyBlock>;
  /// a range that contains every query block that sees a key of block p, and few others
  { plan.query_blocks(p) } -> std::same_as<Range>;
  /// if this is false, block b of the queries sees no key of block p; O(1) or nearly so
  { plan.meets(b, p) } -> std::same_as<bool>;
  /// a range that contains every key block that a query block sees
  { plan.key_blocks(block) } -> std::same_as<Range>;
};

/// The indices [0, count) as row blocks of at most `rows` indices with one residue modulo `step`,
/// in the order of the residues. Every function is O(1).
class ResidueBlocks {
 public:
  /// \param count number of indices \param step modulus of the residues, at least 1
  /// \param rows largest number of indices in a row block, at least 1
  constexpr ResidueBlocks(Index count, Index step, Index rows)
      : count_(count),
        step_(step),
        rows_(rows),
        residues_((std::min)(count, step)),
        long_residues_(count % step),
        long_pieces_(pieces(count / step + 1)),
        short_pieces_(pieces(count / step)) {}

  /// The modulus of the residues, which is the step of each row block.
  constexpr Index step() const { return step_; }
  /// The number of row blocks.
  constexpr Index size() const { return begin(residues_); }

  /// RowBlock n, for n in [0, size()).
  constexpr RowBlock operator[](Index n) const {
    const Index in_long = begin(long_residues_);
    const bool is_long = n < in_long;
    const Index pieces = is_long ? long_pieces_ : short_pieces_;
    const Index from = is_long ? n : n - in_long;
    const Index residue = from / pieces + (is_long ? 0 : long_residues_);
    const Index skipped = from % pieces * rows_;
    return {residue + step_ * skipped, step_, (std::min)(rows_, members(residue) - skipped)};
  }

  /// The row blocks that contain an index of this residue in `indices`.
  constexpr Range range(Index residue, const Range& indices) const {
    if (residue >= residues_ || indices.is_empty()) return {};
    const Index low = ceil_div(indices.begin - residue, step_);
    const Index high = floor_div(indices.end - 1 - residue, step_);
    const Index from = (std::max<Index>)(low, 0);
    const Index to = (std::min)(high, members(residue) - 1);
    if (from > to) return {};
    return {begin(residue) + from / rows_, begin(residue) + to / rows_ + 1};
  }

 private:
  constexpr Index pieces(Index members) const { return (members + rows_ - 1) / rows_; }
  constexpr Index members(Index residue) const {
    return count_ / step_ + (residue < long_residues_ ? 1 : 0);
  }
  /// The first row block of a residue.
  constexpr Index begin(Index residue) const {
    const Index longs = (std::min)(residue, long_residues_);
    return longs * long_pieces_ + (residue - longs) * short_pieces_;
  }

  Index count_;
  Index step_;
  Index rows_;           // the largest number of indices in a row block
  Index residues_;       // number of residues that occur
  Index long_residues_;  // number of leading residues that have one index more than the others
  Index long_pieces_;    // number of row blocks of a long residue
  Index short_pieces_;   // number of row blocks of each other residue
};

FOVEA_NAMESPACE_END
