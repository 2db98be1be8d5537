// SPDX-License-Identifier: MIT
/// \file
/// The assignment of a growing sequence's keys to ranks: blocks of positions, round-robin.
#pragma once

#include <algorithm>

#include "fovea/distributed/row_layout.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Blocks of positions; rank n % ranks stores block n. A rank stores its keys contiguously.
/// (RowLayout::block_cyclic, computed on demand.)
class KeyBlocks {
 public:
  /// \pre block >= 1 and ranks >= 1, and their product fits Index
  KeyBlocks(Index block, int ranks) : block_(block), ranks_(ranks) {}

  /// The number of positions of a block.
  Index size() const { return block_; }
  /// The number of ranks.
  int ranks() const { return static_cast<int>(ranks_); }

  /// The rank that stores the key at a position.
  int rank_of(Index position) const { return static_cast<int>(position / block_ % ranks_); }
  /// Whether all keys from one position to another are contiguous on one rank.
  bool are_together(Index first, Index last) const {
    return ranks_ == 1 || first / block_ == last / block_;
  }
  /// The place of the key at a position among those of its rank.
  Index place(Index position) const {
    return position / (block_ * ranks_) * block_ + position % block_;
  }
  /// The number of keys of a rank among the first `length` ones.
  Index count(int rank, Index length) const {
    const Index of_all = block_ * ranks_;
    return length / of_all * block_ + std::clamp(length % of_all - rank * block_, Index{0}, block_);
  }
  /// Calls f(range) for the positions of a rank in [begin, end), in ascending order.
  template <class F>
  void for_each_range(int rank, Index begin, Index end, const F& f) const {
    const Index of_all = block_ * ranks_;
    for (Index first = begin / of_all * of_all + rank * block_; first < end; first += of_all) {
      const Range range = Range{first, first + block_}.within({begin, end});
      if (!range.is_empty()) f(range);
    }
  }

 private:
  Index block_;
  Index ranks_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
